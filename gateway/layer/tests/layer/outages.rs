//! A store that cannot be reached, before and after the execution.

use std::time::Duration;

use idem_core::StateName;
use idem_layer::ports::Label;
use tokio::time::Instant;

use crate::{
    memory::{Fault, Rpc},
    scripted::{pending, settled, sold_out, unknown},
    world::{LEASE, World, key_id, settle},
};

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_reserved_is_503_within_two_seconds_and_nothing_executes() {
    for fault in [Fault::Refused, Fault::Hangs, Fault::ReplyLost] {
        let world = World::new();
        world.store.fault(Rpc::Reserve, fault, 1);
        let start = Instant::now();
        let answer = world.post("k").await;
        answer.assert_problem(503, "idempotency_unavailable");
        assert!(start.elapsed() <= Duration::from_secs(2));
        assert_eq!((answer.header("retry-after"), answer.header("idempotency-key")), (Some("1"), Some("k")));
        assert_eq!(answer.json()["retryable"], true);
        assert_eq!(world.inner.executions(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_outage_the_same_key_executes() {
    let world = World::new();
    world.store.set_down(true);
    world.post("k").await.assert_problem(503, "idempotency_unavailable");
    world.store.set_down(false);
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
}

#[tokio::test(start_paused = true)]
async fn a_complete_that_fails_three_times_is_made_again_before_the_answer_leaves() {
    let world = World::new();
    world.store.fault(Rpc::Complete, Fault::Refused, 3);
    let answer = world.post("k").await;
    assert_eq!(answer.status, 201);
    assert!(answer.header("idempotency-key-expires").is_some());
    assert_eq!((world.state("k"), world.store.count(Rpc::Complete)), (Some(StateName::Completed), 4));
    assert!(world.post("k").await.is_replay());
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_complete_whose_reply_was_lost_is_not_superseded_by_itself() {
    let world = World::new();
    world.store.fault(Rpc::Complete, Fault::ReplyLost, 1);
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    assert_eq!(world.post("k").await.body, answer.body);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_stored_is_given_and_stored_later() {
    let world = World::new();
    world.store.fault(Rpc::Complete, Fault::Hangs, 5);
    let start = Instant::now();
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.header("idempotency-key-expires")), (201, None));
    assert!(start.elapsed() <= Duration::from_millis(1500), "{:?}", start.elapsed());
    world.post("k").await.assert_problem(409, "conflict/request_in_progress");
    world.store.reaches(&key_id("k"), StateName::Completed).await;
    assert!(start.elapsed() < LEASE);
    let replay = world.post("k").await;
    assert_eq!((replay.is_replay(), replay.body), (true, answer.body));
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_never_stored_is_left_to_recovery_at_the_end_of_the_lease() {
    let world = World::new();
    world.store.fault(Rpc::Complete, Fault::Refused, 10_000);
    let answer = world.post("k").await;
    assert_eq!(answer.status, 201);
    tokio::time::sleep(LEASE).await;
    settle().await;
    let calls = world.store.count(Rpc::Complete);
    assert!((20..200).contains(&calls), "{calls} calls in one lease");
    tokio::time::sleep(LEASE).await;
    assert_eq!(world.store.count(Rpc::Complete), calls);
    // Recovery finds what was made.
    world.record.will(settled(201, r#"{"made":1}"#, Label::Final));
    world.store.fault(Rpc::Complete, Fault::Refused, 0);
    let replay = world.post("k").await;
    assert_eq!((replay.status, replay.is_replay(), replay.body), (201, true, answer.body));
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_given_before_its_release_and_is_in_doubt_without_it() {
    let world = World::new();
    world.inner.will(sold_out());
    world.store.fault(Rpc::Release, Fault::Hangs, 1);
    let start = Instant::now();
    let answer = world.post("k").await;
    answer.assert_problem(503, "upstream_unavailable/in_doubt");
    assert!(answer.header("retry-after").is_some());
    assert!(start.elapsed() <= Duration::from_secs(2));
    // The release is said later, and then the key executes again.
    world.store.reaches(&key_id("k"), StateName::Released).await;
    assert_eq!(world.post("k").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_at_first_is_made_again() {
    let world = World::new();
    world.inner.will(sold_out());
    world.store.fault(Rpc::Release, Fault::Refused, 2);
    world.store.fault(Rpc::Release, Fault::ReplyLost, 1);
    assert_eq!(world.post("k").await.status, 409);
    assert_eq!(world.state("k"), Some(StateName::Released));
}

#[tokio::test(start_paused = true)]
async fn an_abandon_that_cannot_be_said_does_not_keep_the_answer() {
    for (act, status) in [(pending(), 202), (unknown(), 503)] {
        let world = World::new();
        world.inner.will(act);
        world.store.fault(Rpc::Abandon, Fault::Hangs, 2);
        assert_eq!(world.post("k").await.status, status);
        assert_eq!(world.state("k"), Some(StateName::InProgress));
        world.store.reaches(&key_id("k"), StateName::InDoubt).await;
    }
}

/// The client of the idempotency service as the backend, in real time: a peer that takes connections and never says a word.
#[tokio::test]
async fn a_service_that_hangs_is_503_within_two_seconds_with_the_real_client() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let client = idem_client::IdemClient::connect_lazy(endpoint, None).unwrap();
    let world = World::with_backend(client);
    let start = Instant::now();
    world.post("k").await.assert_problem(503, "idempotency_unavailable");
    assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(world.inner.executions(), 0);
}
