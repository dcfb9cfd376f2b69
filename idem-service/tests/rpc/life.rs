//! Keys through their life: what is kept, byte for byte and moment for moment, and who wins when many come at once.

use std::time::{Duration, SystemTime};

use futures::future::join_all;
use idem_proto::idem::v1 as proto;
use tonic::Code;
use uuid::Uuid;

use crate::calls::{
    Command, Outcome as Reserved, finish, get, grant, reason, reserve, reserve_request, seconds, send, stored,
    without_countdown,
};
use crate::server::Server;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn since(later: Option<prost_types::Timestamp>, earlier: Option<prost_types::Timestamp>) -> Duration {
    let time = |timestamp: Option<prost_types::Timestamp>| SystemTime::try_from(timestamp.unwrap()).unwrap();
    time(later).duration_since(time(earlier)).unwrap()
}

async fn hundred_parallel_reserves_make_one_grant(server: Server) {
    let client = server.client();
    for round in 0..5 {
        let key = format!("key {round}");
        let outcomes = join_all((0..100).map(|_| reserve(&client, &key))).await;
        let granted = outcomes.iter().filter(|outcome| matches!(outcome, Reserved::Granted(_))).count();
        let in_progress = outcomes.iter().filter(|outcome| matches!(outcome, Reserved::InProgress(_))).count();
        assert_eq!((granted, in_progress), (1, 99));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_parallel_reserves_make_one_grant_on_sqlite() {
    hundred_parallel_reserves_make_one_grant(Server::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_parallel_reserves_make_one_grant_on_postgres() {
    hundred_parallel_reserves_make_one_grant(Server::on_postgres("parallel").await).await;
}

async fn stored_answer_is_replayed_byte_for_byte_across_a_restart(server: Server) {
    let client = server.client();
    let request = proto::ReserveRequest { trace_context: TRACE.to_owned(), ..reserve_request("k") };
    let Reserved::Granted(held) = send(&client, request).await else { panic!("a fresh key is granted") };
    assert_eq!(finish(&client, Command::Complete, "k", &held).await, "completed");
    let Reserved::Replay(replay) = reserve(&client, "k").await else { panic!("a completed key replays") };
    assert_eq!(replay.response, Some(stored(201)));
    assert_eq!(replay.trace_context, TRACE);
    assert_eq!(since(replay.expires_at, replay.completed_at), Duration::from_secs(24 * 3600));

    let scratch = server.stop().await.unwrap();
    let server = Server::start(scratch, &["--replay-cache-mib=0"]).await;
    let again = reserve(&server.client(), "k").await;
    assert_eq!(without_countdown(again), without_countdown(Reserved::Replay(replay)));
    server.stop().await;
}

#[tokio::test]
async fn stored_answer_is_replayed_byte_for_byte_across_a_restart_on_sqlite() {
    stored_answer_is_replayed_byte_for_byte_across_a_restart(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn stored_answer_is_replayed_byte_for_byte_across_a_restart_on_postgres() {
    stored_answer_is_replayed_byte_for_byte_across_a_restart(Server::on_postgres("replay").await).await;
}

#[tokio::test]
async fn absent_durations_have_their_defaults_and_given_ones_count() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "default").await;
    let record = get(&client, "default").await.unwrap();
    assert_eq!(since(held.lease_expires_at, record.created_at), Duration::from_secs(60));
    let request = proto::ReserveRequest { lease: seconds(5), retention: seconds(6), ..reserve_request("given") };
    let Reserved::Granted(held) = send(&client, request).await else { panic!("a fresh key is granted") };
    let record = get(&client, "given").await.unwrap();
    assert_eq!(since(held.lease_expires_at, record.created_at), Duration::from_secs(5));
    finish(&client, Command::Release, "given", &held).await;
    let record = get(&client, "given").await.unwrap();
    assert_eq!(since(record.expires_at, record.updated_at), Duration::from_secs(6));
    server.stop().await;
}

#[tokio::test]
async fn get_shows_the_record_without_its_body_until_the_retention_is_over() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let refused = get(&client, "k").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "NO_RECORD"));
    let held = grant(&client, "k").await;
    let record = get(&client, "k").await.unwrap();
    assert_eq!((record.state(), record.attempts, record.lease_over), (proto::State::InProgress, 1, false));
    assert_eq!((&record.operation_id, record.fencing_token), (&held.operation_id, held.fencing_token));
    assert_eq!((record.lease_expires_at, record.expires_at), (held.lease_expires_at, None));
    server.hand.advance(Duration::from_secs(60));
    assert!(get(&client, "k").await.unwrap().lease_over);
    finish(&client, Command::Complete, "k", &held).await;
    let record = get(&client, "k").await.unwrap();
    assert_eq!((record.state(), record.status, record.resource_id.as_str()), (proto::State::Completed, 201, "order-1"));
    assert_eq!((record.lease_expires_at, record.lease_over), (None, false));
    server.hand.advance(Duration::from_secs(24 * 3600));
    assert_eq!(get(&client, "k").await.unwrap_err().code(), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn two_scopes_never_meet() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let a = grant(&client, "k").await;
    let other = proto::ReserveRequest { scope: "rest/b".to_owned(), ..reserve_request("k") };
    let Reserved::Granted(b) = send(&client, other).await else { panic!("another scope is another key") };
    assert_ne!(a.operation_id, b.operation_id);
    server.stop().await;
}

#[tokio::test]
async fn same_attempt_hears_its_grant_again_and_stale_once_it_has_ended() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let mine = proto::ReserveRequest { attempt_id: Uuid::new_v4().to_string(), ..reserve_request("k") };
    let first = send(&client, mine.clone()).await;
    assert_eq!(send(&client, mine.clone()).await, first);
    let Reserved::Granted(held) = first else { panic!("a fresh key is granted") };
    finish(&client, Command::Release, "k", &held).await;
    let Reserved::Stale(stale) = send(&client, mine).await else { panic!("never a grant to nobody") };
    assert_eq!(stale.reason(), proto::StaleReason::AttemptEnded);
    server.stop().await;
}

#[tokio::test]
async fn waiting_reserve_hears_the_answer_of_the_running_one() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "k").await;
    let waiting = proto::ReserveRequest { wait: seconds(30), ..reserve_request("k") };
    let (heard, _) = tokio::join!(send(&client, waiting), finish(&client, Command::Complete, "k", &held));
    assert!(matches!(heard, Reserved::Replay(_)), "{heard:?}");
    server.stop().await;
}

#[tokio::test]
async fn stored_body_of_one_mebibyte_makes_the_round_trip() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "k").await;
    let body: Vec<u8> = (0..1024 * 1024).map(|i| (i % 251) as u8).collect();
    let request = proto::CompleteRequest {
        scope: crate::calls::SCOPE.to_owned(),
        key: "k".to_owned(),
        operation_id: held.operation_id,
        fencing_token: held.fencing_token,
        response: Some(proto::StoredResponse { body: body.clone().into(), ..stored(200) }),
        ..Default::default()
    };
    client.clone().complete(request).await.unwrap();
    let Reserved::Replay(replay) = reserve(&client, "k").await else { panic!("a completed key replays") };
    assert!(replay.response.unwrap().body == body);
    server.stop().await;
}
