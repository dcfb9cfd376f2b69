//! The store goes away: refused in time, told in health, and nothing is lost or done twice when it is back.

use std::time::{Duration, Instant};

use database::testing::{Scratch, postgres_url};
use futures::future::join_all;
use idem_proto::idem::v1 as proto;
use tonic::{Code, Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt;

use crate::calls::{COMMANDS, Client, Command, Outcome, carry_out, finish, get, grant, reason, reserve_request, send};
use crate::lifecycle::until_health;
use crate::proxy::{Mode, Proxy};
use crate::server::{Server, config};

/// A service that reaches its Postgres through a proxy. The store goes last.
async fn behind_proxy(name: &str) -> (Server, Proxy, Scratch) {
    let scratch = postgres_url(name).await;
    let proxy = Proxy::before(&scratch).await;
    let server = Server::try_start(config(proxy.url(), &["--replay-cache-mib=0"])).await.expect("the service starts");
    (server, proxy, scratch)
}

/// Carries `call` out, and how long it took.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    #[allow(clippy::disallowed_methods, reason = "the time that a caller waits is what is tested")]
    let begun = Instant::now();
    (call.await, begun.elapsed())
}

async fn reserve_within(client: &Client, ask: &proto::ReserveRequest, timeout: Option<Duration>) -> Result<(), Status> {
    let mut request = Request::new(ask.clone());
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    client.clone().reserve(request).await.map(drop)
}

fn assert_unavailable(status: &Status) {
    assert_eq!((status.code(), reason(status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"), "{status:?}");
    let retry = status.get_error_details().retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some_and(|delay| delay > Duration::ZERO), "{status:?}");
    assert!(!status.message().contains("127.0.0.1"), "{status:?}");
}

async fn readyz(server: &Server) -> (u16, String) {
    let answer = reqwest::get(server.url("/readyz")).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_refused_in_time_while_postgres_is_away_and_served_when_it_is_back() {
    let (server, proxy, _scratch) = behind_proxy("outage").await;
    let client = server.client();
    let held = grant(&client, "held").await;
    until_health(&server, "idem.v1.IdempotencyService", ServingStatus::Serving).await;
    assert_eq!(readyz(&server).await.0, 200);

    // One attempt, made again and again: what was held back on the way may still arrive when the way is open again.
    let fresh = reserve_request("fresh");
    let items: Vec<_> = (0..50).map(|n| reserve_request(&format!("fresh {n}"))).collect();
    let many = proto::ReserveManyRequest { items };
    for mode in [Mode::Down, Mode::Silent] {
        proxy.set(mode).await;
        let (refused, took) = timed(reserve_within(&client, &fresh, None)).await;
        assert_unavailable(&refused.unwrap_err());
        assert!(took < Duration::from_millis(1900), "{mode:?}: {took:?}");
        let (refused, took) = timed(reserve_within(&client, &fresh, Some(Duration::from_millis(500)))).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused.code(), Code::Unavailable | Code::DeadlineExceeded), "{refused:?}");
        assert!(took < Duration::from_secs(1), "{mode:?}: {took:?}");
        let commands = join_all(
            COMMANDS.map(|command| carry_out(&client, command, "held", &held.operation_id, held.fencing_token)),
        );
        let mut admin = server.admin_client();
        let (refusals, got, listed) =
            tokio::join!(commands, get(&client, "held"), admin.list(proto::ListRequest::default()));
        refusals.into_iter().for_each(|refused| assert_unavailable(&refused.unwrap_err()));
        let many = client.clone().reserve_many(many.clone()).await;
        assert_unavailable(&many.unwrap_err());
        assert_unavailable(&got.unwrap_err());
        assert_unavailable(&listed.unwrap_err());
        until_health(&server, "idem.v1.IdempotencyService", ServingStatus::NotServing).await;
        // Nobody restarts it for that: the process is well.
        until_health(&server, "liveness", ServingStatus::Serving).await;
        let (status, report) = readyz(&server).await;
        assert!(status == 503 && report.contains("store"), "{report}");

        proxy.set(Mode::Open).await;
        until_health(&server, "idem.v1.IdempotencyService", ServingStatus::Serving).await;
        assert_eq!(readyz(&server).await.0, 200);
        assert_eq!(get(&client, "held").await.unwrap().state(), proto::State::InProgress, "{mode:?}");
    }
    assert_eq!(finish(&client, Command::Complete, "held", &held).await, "completed");
    let Outcome::Granted(fresh) = send(&client, fresh).await else { panic!("its own attempt is not granted") };
    assert_eq!((fresh.attempts, fresh.fencing_token), (1, 1));
    for outcome in client.clone().reserve_many(many).await.unwrap().into_inner().outcomes {
        let Some(Outcome::Granted(fresh)) = outcome.outcome else {
            panic!("its own attempt is not granted: {outcome:?}")
        };
        assert_eq!((fresh.attempts, fresh.fencing_token), (1, 1));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_reply_of_a_postgres_commit_is_met_again_inside_the_same_call() {
    let (server, proxy, _scratch) = behind_proxy("lost_reply").await;
    let client = server.client();
    // Every statement is prepared, so that the next reply is that of the write.
    let warm = grant(&client, "warm").await;
    finish(&client, Command::Complete, "warm", &warm).await;
    proxy.swallow_next_reply();
    let held = grant(&client, "k").await;
    assert!(proxy.has_swallowed());
    assert_eq!((held.fencing_token, held.attempts), (1, 1));
    proxy.swallow_next_reply();
    assert_eq!(finish(&client, Command::Complete, "k", &held).await, "completed");
    assert!(proxy.has_swallowed());
    assert_eq!(get(&client, "k").await.unwrap().state(), proto::State::Completed);

    // The commit of a batch.
    let items: Vec<_> = (0..100).map(|n| reserve_request(&format!("item {n}"))).collect();
    proxy.swallow_next_reply();
    let answer = client.clone().reserve_many(proto::ReserveManyRequest { items }).await.unwrap().into_inner();
    assert!(proxy.has_swallowed());
    for outcome in answer.outcomes {
        let Some(Outcome::Granted(held)) = outcome.outcome else { panic!("{outcome:?}") };
        assert_eq!((held.fencing_token, held.attempts), (1, 1));
    }
    server.stop().await;
}
