//! What the engine remembers, how many round trips it saves, and that it never answers from a guess.

use std::time::Duration;

use idem_core::{Answer, StaleReason};

use crate::world::{Expect, LEASE, RETENTION, World, response};

const MIB: u64 = 1024 * 1024;

#[tokio::test]
async fn fresh_reserve_and_each_command_of_its_holder_take_one_round_trip() {
    let world = World::new();
    let grant = world.reserve("k").await.granted();
    assert_eq!(world.store.take_calls(), (0, 1));
    world.renew("k", grant).await;
    assert_eq!(world.store.take_calls(), (0, 1));
    world.complete("k", grant, 201).await;
    assert_eq!(world.store.take_calls(), (0, 1));
    let grant = world.reserve("l").await.granted();
    world.abandon("l", grant).await;
    assert_eq!(world.store.take_calls(), (0, 2));
    let grant = world.reserve("m").await.granted();
    world.release("m", grant).await;
    assert_eq!(world.store.take_calls(), (0, 2));
}

#[tokio::test]
async fn grant_of_another_replica_takes_a_look_first() {
    let world = World::new();
    let grant = world.reserve("k").await.granted();
    world.store.take_calls();
    assert_eq!(world.replica().complete("k", grant, 201).await.answer, Answer::Completed);
    assert_eq!(world.store.take_calls(), (1, 1));
}

#[tokio::test]
async fn remembered_grant_that_was_fenced_elsewhere_is_not_believed() {
    let world = World::new();
    let replica = world.replica();
    let zombie = world.reserve("k").await.granted();
    world.hand.advance(LEASE);
    let seen = replica.reserve("k").await.stale(StaleReason::LeaseExpired);
    let heir = replica.reclaim("k", seen).await.granted();
    replica.complete("k", heir, 201).await;
    // This replica still remembers the zombie's grant: the lost swap brings the truth.
    assert_eq!(world.complete("k", zombie, 500).await.answer, Answer::SupersededBy(response(201)));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
}

#[tokio::test]
async fn remembered_grant_does_not_judge_another_token() {
    let world = World::new();
    let replica = world.replica();
    let first = world.reserve("k").await.granted();
    replica.release("k", first).await;
    let second = replica.reserve("k").await.granted();
    // By the grant that this replica remembers, the second token would be a foreign one.
    assert_eq!(world.complete("k", second, 201).await.answer, Answer::Completed);
}

#[tokio::test]
async fn replays_are_served_from_memory_and_judged_by_fingerprint() {
    let world = World::with_replay_cache(MIB);
    let grant = world.reserve("k").await.granted();
    world.complete("k", grant, 201).await;
    world.store.take_calls();
    let replay = world.reserve("k").await;
    assert_eq!(replay.replayed_status(), 201);
    assert!(replay.snapshot.times.expires_at.is_some());
    assert_eq!(world.reserve_other("k").await.answer, Answer::Mismatch);
    assert_eq!(world.store.take_calls(), (0, 0));
    // Another replica learns it at its first look.
    let replica = world.replica();
    assert_eq!(replica.reserve("k").await.replayed_status(), 201);
}

#[tokio::test]
async fn remembered_answer_is_dropped_a_second_before_the_store_would() {
    let world = World::with_replay_cache(MIB);
    let grant = world.reserve("k").await.granted();
    world.complete("k", grant, 201).await;
    world.store.take_calls();
    world.hand.advance(RETENTION - Duration::from_secs(2));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
    assert_eq!(world.store.take_calls(), (0, 0));
    world.hand.advance(Duration::from_secs(1));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
    assert_eq!(world.store.take_calls(), (0, 1));
    world.hand.advance(Duration::from_secs(1));
    assert_ne!(world.reserve("k").await.granted().operation_id, grant.operation_id);
}

#[tokio::test]
async fn answer_larger_than_the_memory_is_not_kept() {
    let world = World::with_replay_cache(512);
    let grant = world.reserve("k").await.granted();
    world.complete("k", grant, 201).await;
    world.store.take_calls();
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
    assert_eq!(world.store.take_calls(), (0, 1));
}
