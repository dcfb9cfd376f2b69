//! `Prefer: wait=N`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    memory::{Fault, Rpc},
    scripted::{Act, Gate, created, sold_out},
    world::{World, post, settle},
};

fn slow(seconds: u64) -> Act {
    Act::Slow(Duration::from_secs(seconds), Box::new(created()))
}

#[tokio::test(start_paused = true)]
async fn the_running_original_is_waited_for_and_replayed() {
    let world = World::new();
    world.inner.will(slow(7));
    let first = world.start(post("k"));
    settle().await;
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "respond-async, wait=10")).await;
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert_eq!(answer.header("preference-applied"), Some("wait=10"));
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    assert_eq!(first.await.unwrap().header("preference-applied"), None);
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_original_that_still_runs_is_409_when_the_wait_is_over() {
    let world = World::new();
    world.inner.will(slow(20));
    let _first = world.start(post("k"));
    settle().await;
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "wait=3")).await;
    answer.assert_problem(409, "conflict/request_in_progress");
    assert_eq!(answer.header("preference-applied"), Some("wait=3"));
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_at_most_thirty_seconds_and_nonsense_is_none() {
    let world = World::new();
    world.reserved_by_the_dead("k");
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "wait=3600")).await;
    answer.assert_problem(409, "conflict/request_in_progress");
    assert_eq!(answer.header("preference-applied"), Some("wait=30"));
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    for nonsense in ["wait=0", "wait=soon", "wait=-1", "respond-async"] {
        let start = Instant::now();
        let answer = world.send(post("k").header("prefer", nonsense)).await;
        answer.assert_problem(409, "conflict/request_in_progress");
        assert_eq!((answer.header("preference-applied"), start.elapsed()), (None, Duration::ZERO), "{nonsense}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_dies_meanwhile_is_recovered_by_who_waits() {
    let world = World::new();
    world.reserved_by_the_dead("k");
    tokio::time::advance(crate::world::LEASE - Duration::from_secs(5)).await;
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "wait=20")).await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    assert!((5..=6).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(world.record.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_refusal_executes_in_its_place() {
    let world = World::new();
    world.inner.will(Act::Slow(Duration::from_secs(4), Box::new(sold_out())));
    let first = world.start(post("k"));
    settle().await;
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "wait=10")).await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    assert_eq!(start.elapsed(), Duration::from_secs(4));
    assert_eq!(first.await.unwrap().status, 409);
    let permit = world.inner.seen()[1].permit.unwrap();
    assert_eq!((permit.token.0, permit.deadline), (2, Instant::now() + crate::world::UPSTREAM));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_during_the_wait_is_503_within_two_seconds() {
    let world = World::new();
    world.reserved_by_the_dead("k");
    let waiting = world.start(post("k").header("prefer", "wait=30"));
    tokio::time::sleep(Duration::from_millis(4500)).await;
    world.store.fault(Rpc::Reserve, Fault::Hangs, 1);
    let start = Instant::now();
    waiting.await.unwrap().assert_problem(503, "idempotency_unavailable");
    assert!(start.elapsed() <= Duration::from_millis(2500), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_503_within_two_seconds_however_long_the_client_would_wait() {
    let world = World::new();
    world.store.fault(Rpc::Reserve, Fault::Hangs, 1);
    let start = Instant::now();
    let answer = world.send(post("k").header("prefer", "wait=30")).await;
    answer.assert_problem(503, "idempotency_unavailable");
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_client_that_is_gone() {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(sold_out())));
    let first = world.start(post("k"));
    gate.arrived().await;
    let waiting = world.start(post("k").header("prefer", "wait=30"));
    settle().await;
    waiting.abort();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let calls = world.store.count(Rpc::Reserve);
    gate.open();
    assert_eq!(first.await.unwrap().status, 409);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The one that is gone neither asks again nor executes.
    assert_eq!((world.store.count(Rpc::Reserve), world.inner.executions()), (calls, 1));
}
