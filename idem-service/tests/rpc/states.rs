//! Every state × every command, as the contract's tables say.

use std::time::Duration;

use idem_proto::idem::v1 as proto;
use proto::reclaim_response::Outcome as Reclaimed;
use uuid::Uuid;

use crate::calls::{
    COMMANDS, Client, Command, Outcome as Reserved, carry_out, finish, get, grant, reclaim, reserve, reserve_request,
    send,
};
use crate::server::Server;

const LEASE: Duration = Duration::from_secs(60);
const RETENTION: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Absent,
    LeaseAlive,
    LeaseOver,
    InDoubt,
    Released,
    Completed,
    /// Completed, and the retention is over.
    Expired,
}
use State::{Absent, Completed, Expired, InDoubt, LeaseAlive, LeaseOver, Released};

const STATES: [State; 7] = [Absent, LeaseAlive, LeaseOver, InDoubt, Released, Completed, Expired];

/// Brings a fresh key into `state`, and says whose it is or was.
async fn bring(server: &Server, client: &Client, key: &str, state: State) -> proto::Granted {
    if state == Absent {
        return proto::Granted { operation_id: Uuid::new_v4().to_string(), fencing_token: 1, ..Default::default() };
    }
    let held = grant(client, key).await;
    let command = match state {
        Absent | LeaseAlive | LeaseOver => None,
        InDoubt => Some(Command::Abandon),
        Released => Some(Command::Release),
        Completed | Expired => Some(Command::Complete),
    };
    if let Some(command) = command {
        finish(client, command, key, &held).await;
    }
    match state {
        LeaseOver => server.hand.advance(LEASE),
        Expired => server.hand.advance(RETENTION),
        _ => {}
    }
    held
}

/// What the holder with the current operation id and token hears.
fn holder_hears(state: State, command: Command) -> &'static str {
    use Command::{Abandon, Complete, Release, Renew};
    match (state, command) {
        (Absent, _) => "superseded by unspecified",
        (LeaseAlive | LeaseOver | InDoubt | Completed | Expired, Complete) => "completed",
        (LeaseAlive | LeaseOver | Released, Release) => "released",
        (LeaseAlive | LeaseOver | InDoubt, Abandon) => "abandoned",
        (LeaseAlive | LeaseOver, Renew) => "renewed",
        (state, _) => superseded_by(state),
    }
}

fn superseded_by(state: State) -> &'static str {
    match state {
        Absent => "superseded by unspecified",
        LeaseAlive | LeaseOver => "superseded by in_progress",
        InDoubt => "superseded by in_doubt",
        Released => "superseded by released",
        Completed | Expired => "superseded by completed, with its answer",
    }
}

async fn commands_follow_the_table(server: Server) {
    let client = server.client();
    for state in STATES.into_iter().filter(|state| *state != Expired) {
        for command in COMMANDS {
            let key = format!("{state:?} {command:?}");
            let held = bring(&server, &client, &key, state).await;
            let other = Uuid::new_v4().to_string();
            for (operation_id, token) in [
                (other.as_str(), held.fencing_token),
                (held.operation_id.as_str(), held.fencing_token + 1),
                (held.operation_id.as_str(), held.fencing_token - 1),
                (held.operation_id.as_str(), -1),
            ] {
                let before = get(&client, &key).await.ok();
                let heard = carry_out(&client, command, &key, operation_id, token).await.unwrap();
                // What stands under the key is told to everyone, its answer only to holders of the operation that it answers.
                let is_own = operation_id == held.operation_id;
                let expected = if is_own {
                    superseded_by(state)
                } else {
                    superseded_by(state).trim_end_matches(", with its answer")
                };
                assert_eq!(heard, expected, "{state:?} {command:?} with another token");
                assert_eq!(get(&client, &key).await.ok(), before, "{state:?} {command:?} changed something");
            }
            let heard = finish(&client, command, &key, &held).await;
            assert_eq!(heard, holder_hears(state, command), "{state:?} {command:?}");
            // Every command is safe to repeat.
            assert_eq!(finish(&client, command, &key, &held).await, heard, "{state:?} {command:?} again");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn commands_follow_the_table_on_sqlite() {
    commands_follow_the_table(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn commands_follow_the_table_on_postgres() {
    commands_follow_the_table(Server::on_postgres("commands").await).await;
}

fn name_of(outcome: &Reserved) -> &'static str {
    match outcome {
        Reserved::Granted(_) => "granted",
        Reserved::Replay(_) => "replay",
        Reserved::InProgress(_) => "in progress",
        Reserved::Mismatch(_) => "mismatch",
        Reserved::Stale(stale) => match stale.reason() {
            proto::StaleReason::Unspecified => "stale without a reason",
            proto::StaleReason::LeaseExpired => "stale: lease expired",
            proto::StaleReason::InDoubt => "stale: in doubt",
            proto::StaleReason::AttemptEnded => "stale: attempt ended",
        },
    }
}

async fn reserve_follows_the_states(server: Server) {
    let client = server.client();
    for state in STATES {
        let key = format!("{state:?}");
        let held = bring(&server, &client, &key, state).await;
        if state != Absent && state != Expired {
            let other = proto::ReserveRequest { fingerprint: vec![8; 32].into(), ..reserve_request(&key) };
            assert_eq!(name_of(&send(&client, other).await), "mismatch", "{state:?}");
        }
        let outcome = reserve(&client, &key).await;
        let expected = match state {
            Absent | Released | Expired => "granted",
            LeaseAlive => "in progress",
            LeaseOver => "stale: lease expired",
            InDoubt => "stale: in doubt",
            Completed => "replay",
        };
        assert_eq!(name_of(&outcome), expected, "{state:?}");
        match (state, outcome) {
            (Released, Reserved::Granted(granted)) => {
                assert_eq!(granted.operation_id, held.operation_id);
                assert_eq!((granted.fencing_token, granted.attempts, granted.must_ask), (2, 2, false));
            }
            (Expired, Reserved::Granted(granted)) => {
                assert_ne!(granted.operation_id, held.operation_id);
                assert_eq!((granted.fencing_token, granted.attempts), (2, 1));
            }
            (LeaseOver | InDoubt, Reserved::Stale(stale)) => {
                assert_eq!((stale.operation_id, stale.fencing_token), (held.operation_id, held.fencing_token));
            }
            (LeaseAlive, Reserved::InProgress(in_progress)) => {
                assert!(in_progress.retry_after.is_some());
                assert_eq!(in_progress.lease_expires_at, held.lease_expires_at);
            }
            _ => {}
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn reserve_follows_the_states_on_sqlite() {
    reserve_follows_the_states(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn reserve_follows_the_states_on_postgres() {
    reserve_follows_the_states(Server::on_postgres("reserve").await).await;
}

async fn reclaim_follows_the_states(server: Server) {
    let client = server.client();
    for state in STATES {
        let key = format!("{state:?}");
        let held = bring(&server, &client, &key, state).await;
        let (operation_id, token) = (held.operation_id.as_str(), held.fencing_token);
        if state == Absent || state == Expired {
            let request = proto::ReclaimRequest {
                scope: crate::calls::SCOPE.to_owned(),
                key: key.clone(),
                operation_id: operation_id.to_owned(),
                fencing_token: token,
                attempt_id: Uuid::new_v4().to_string(),
                lease: None,
            };
            let refused = client.clone().reclaim(request).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::NotFound, "{state:?}");
            assert_eq!(crate::calls::reason(&refused), "NO_RECORD");
            continue;
        }
        let lost = reclaim(&client, &key, operation_id, token + 7).await;
        let foreign = reclaim(&client, &key, &Uuid::new_v4().to_string(), token).await;
        assert!(matches!(foreign, Reclaimed::InProgress(_)), "{state:?}: what was asked for is another operation");
        let won = reclaim(&client, &key, operation_id, token).await;
        match state {
            Completed => {
                assert!(matches!((lost, won), (Reclaimed::Replay(_), Reclaimed::Replay(_))));
            }
            LeaseAlive => {
                assert!(matches!((lost, won), (Reclaimed::InProgress(_), Reclaimed::InProgress(_))));
            }
            _ => {
                assert!(matches!(lost, Reclaimed::InProgress(_)), "{state:?}: {lost:?}");
                let Reclaimed::Granted(heir) = won else { panic!("{state:?}: {won:?}") };
                assert_eq!((heir.operation_id.as_str(), heir.fencing_token), (operation_id, token + 1));
                assert!(heir.must_ask && heir.attempts == 2);
                // The old holder's heartbeat prolongs nobody's lease, and none of its other words counts.
                let before = get(&client, &key).await.unwrap();
                assert_eq!(before.lease_expires_at, heir.lease_expires_at);
                server.hand.advance(LEASE / 2);
                for command in COMMANDS {
                    assert_eq!(finish(&client, command, &key, &held).await, "superseded by in_progress");
                }
                assert_eq!(get(&client, &key).await.unwrap(), before, "{state:?}");
                assert_eq!(finish(&client, Command::Complete, &key, &heir).await, "completed");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn reclaim_follows_the_states_on_sqlite() {
    reclaim_follows_the_states(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn reclaim_follows_the_states_on_postgres() {
    reclaim_follows_the_states(Server::on_postgres("reclaim").await).await;
}
