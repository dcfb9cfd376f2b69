//! Answers that are given again without asking anybody.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use idem_layer::Pace;

use crate::{
    memory::Rpc,
    world::{World, post},
};

const MIB: u64 = 1024 * 1024;

/// A world in which one answer was stored and replayed once.
async fn replayed_once(bytes: u64) -> World {
    let world = World::that_remembers(bytes, Pace::own());
    assert_eq!(world.post("k").await.status, 201);
    assert!(world.post("k").await.is_replay());
    world
}

#[tokio::test(start_paused = true)]
async fn a_second_replay_asks_nobody_and_is_the_same() {
    let world = replayed_once(MIB).await;
    let first = world.post("k").await;
    let asked = world.store.count(Rpc::Reserve);
    world.store.set_down(true);
    for _ in 0..3 {
        let again = world.post("k").await;
        assert!(again.is_replay());
        assert_eq!((again.status, &again.body, &again.headers), (first.status, &first.body, &first.headers));
    }
    assert_eq!((world.store.count(Rpc::Reserve), world.inner.executions()), (asked, 1));
}

#[tokio::test(start_paused = true)]
async fn another_request_under_a_remembered_key_is_refused() {
    let world = replayed_once(MIB).await;
    let other = world.send(post("k").body(r#"{"other":1}"#)).await;
    other.assert_problem(422, "idempotency_key_reuse");
    assert!(world.post("k").await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn a_remembered_answer_is_its_tenants_alone() {
    let world = replayed_once(MIB).await;
    let other = world.send(post("k").scope(Some("rest/other"))).await;
    assert_eq!((other.status, other.is_replay(), world.inner.executions()), (201, false, 2));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_forgotten_before_the_store_forgets_it() {
    let world = replayed_once(MIB).await;
    let retention = Duration::from_secs(24 * 3600);
    tokio::time::advance(retention - Duration::from_millis(1500)).await;
    let asked = world.store.count(Rpc::Reserve);
    assert!(world.post("k").await.is_replay());
    assert_eq!(world.store.count(Rpc::Reserve), asked, "it is remembered still");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(world.post("k").await.is_replay());
    assert_eq!(world.store.count(Rpc::Reserve), asked + 1, "the last second is the store's");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((world.post("k").await.is_replay(), world.inner.executions()), (false, 2));
}

#[tokio::test(start_paused = true)]
async fn time_that_a_test_moves_counts_too() {
    let moved = Arc::new(Mutex::new(Duration::ZERO));
    let pace = Pace::new({
        let moved = moved.clone();
        move || *moved.lock().unwrap()
    });
    let world = World::that_remembers(MIB, pace);
    world.post("k").await;
    world.post("k").await;
    let asked = world.store.count(Rpc::Reserve);
    world.post("k").await;
    assert_eq!(world.store.count(Rpc::Reserve), asked);
    *moved.lock().unwrap() = Duration::from_secs(24 * 3600);
    world.post("k").await;
    assert_eq!(world.store.count(Rpc::Reserve), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_by_bytes() {
    // One that is larger than the whole memory is not taken in, and one of many is pushed out.
    for bytes in [0, 100] {
        let world = replayed_once(bytes).await;
        let asked = world.store.count(Rpc::Reserve);
        assert!(world.post("k").await.is_replay());
        assert_eq!(world.store.count(Rpc::Reserve), asked + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_still_change_is_asked_for_every_time() {
    let world = World::that_remembers(MIB, Pace::own());
    world.reserved_by_the_dead("k");
    for nth in 1..=3 {
        world.post("k").await.assert_problem(409, "conflict/request_in_progress");
        assert_eq!(world.store.count(Rpc::Reserve), nth);
    }
    // And what had no effect is executed again.
    world.inner.will(crate::scripted::sold_out());
    assert_eq!(world.post("free").await.status, 409);
    assert_eq!(world.post("free").await.status, 201);
}
