//! The engine over a store whose clock is moved by hand: what callers meet when they retry, stall, die and wake.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "engine/double.rs"]
mod double;
#[path = "engine/each.rs"]
mod each;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/memory.rs"]
mod memory;
#[path = "engine/waiting.rs"]
mod waiting;
#[path = "engine/world.rs"]
mod world;

use std::time::Duration;

use futures::future::join_all;
use idem_core::{Answer, FencingToken, StaleReason, State, StateName};
use idem_service::store::Store;
use world::{Expect, LEASE, RETENTION, World, attempt, response};

#[tokio::test]
async fn late_complete_is_fenced_after_reclaim() {
    let world = World::new();
    let zombie = world.reserve("k").await.granted();
    world.hand.advance(LEASE);
    let seen = world.reserve("k").await.stale(StaleReason::LeaseExpired);
    let heir = world.reclaim("k", seen).await.granted();
    assert!(heir.must_ask && heir.operation_id == zombie.operation_id && heir.token == zombie.token.next());
    assert_eq!(world.complete("k", zombie, 500).await.answer, Answer::Superseded(Some(StateName::InProgress)));
    assert_eq!(world.renew("k", zombie).await.answer, Answer::Superseded(Some(StateName::InProgress)));
    assert_eq!(world.complete("k", heir, 201).await.answer, Answer::Completed);
    assert_eq!(world.complete("k", zombie, 500).await.answer, Answer::SupersededBy(response(201)));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
}

#[tokio::test]
async fn late_complete_is_accepted_while_nobody_has_reclaimed() {
    let world = World::new();
    let holder = world.reserve("k").await.granted();
    world.hand.advance(LEASE * 10);
    world.reserve("k").await.stale(StaleReason::LeaseExpired);
    assert_eq!(world.complete("k", holder, 201).await.answer, Answer::Completed);
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
}

#[tokio::test]
async fn three_callers_release_never_lets_a_dead_holder_complete() {
    let world = World::new();
    let a = world.reserve("k").await.granted();
    world.hand.advance(LEASE);
    let seen = world.reserve("k").await.stale(StaleReason::LeaseExpired);
    let b = world.reclaim("k", seen).await.granted();
    assert_eq!(world.release("k", b).await.answer, Answer::Released);
    let c = world.reserve("k").await.granted();
    assert!(a.token < b.token && b.token < c.token, "the release kept the counter");
    for dead in [a, b] {
        assert_eq!(world.complete("k", dead, 500).await.answer, Answer::Superseded(Some(StateName::InProgress)));
        assert_eq!(world.release("k", dead).await.answer, Answer::Superseded(Some(StateName::InProgress)));
        assert_eq!(world.abandon("k", dead).await.answer, Answer::Superseded(Some(StateName::InProgress)));
    }
    assert_eq!(world.complete("k", c, 201).await.answer, Answer::Completed);
}

#[tokio::test]
async fn same_attempt_gets_the_same_grant_until_it_has_ended() {
    let world = World::new();
    let mine = attempt();
    let first = world.reserve_as("k", mine).await.granted();
    assert_eq!(world.reserve_as("k", mine).await.granted(), first);
    assert_eq!(world.reserve("k").await.answer, Answer::InProgress);
    world.release("k", first).await;
    world.reserve_as("k", mine).await.stale(StaleReason::AttemptEnded);
    let second = world.reserve("k").await.granted();
    assert_eq!((second.operation_id, second.attempts), (first.operation_id, 2));
    assert_eq!(world.reserve_as("k", mine).await.answer, Answer::InProgress);
}

#[tokio::test]
async fn other_request_under_the_key_is_a_mismatch_in_every_state_and_changes_nothing() {
    let world = World::new();
    let grant = world.reserve("k").await.granted();
    assert_eq!(world.reserve_other("k").await.answer, Answer::Mismatch);
    world.hand.advance(LEASE);
    assert_eq!(world.reserve_other("k").await.answer, Answer::Mismatch);
    world.abandon("k", grant).await;
    assert_eq!(world.reserve_other("k").await.answer, Answer::Mismatch);
    world.complete("k", grant, 201).await;
    assert_eq!(world.reserve_other("k").await.answer, Answer::Mismatch);
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
}

#[tokio::test]
async fn after_the_retention_the_key_is_new_and_its_token_continues() {
    let world = World::new();
    let first = world.reserve("k").await.granted();
    world.complete("k", first, 201).await;
    world.hand.advance(RETENTION - Duration::from_micros(1));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
    world.hand.advance(Duration::from_micros(1));
    let second = world.reserve_other("k").await.granted();
    assert_ne!(second.operation_id, first.operation_id);
    assert_eq!((second.token, second.attempts), (first.token.next(), 1));
    assert_eq!(world.complete("k", first, 500).await.answer, Answer::Superseded(Some(StateName::InProgress)));
}

#[tokio::test]
async fn after_the_purge_the_number_of_a_dead_holder_opens_nothing() {
    let world = World::new();
    let dead = world.reserve("k").await.granted();
    world.complete("k", dead, 201).await;
    world.hand.advance(RETENTION);
    assert_eq!(world.store.purge(10).await.unwrap(), 1);
    assert_eq!(world.complete("k", dead, 500).await.answer, Answer::Superseded(None));
    let fresh = world.reserve("k").await.granted();
    assert_eq!((fresh.token, dead.token), (FencingToken::FIRST, FencingToken::FIRST));
    assert_eq!(world.complete("k", dead, 500).await.answer, Answer::Superseded(Some(StateName::InProgress)));
}

#[tokio::test]
async fn unfinished_keys_never_expire() {
    let world = World::new();
    world.reserve("held").await.granted();
    let doubtful = world.reserve("doubtful").await.granted();
    world.abandon("doubtful", doubtful).await;
    world.hand.advance(RETENTION * 30);
    assert_eq!(world.store.purge(10).await.unwrap(), 0);
    world.reserve("held").await.stale(StaleReason::LeaseExpired);
    world.reserve("doubtful").await.stale(StaleReason::InDoubt);
}

#[tokio::test]
async fn hundred_parallel_reserves_make_one_grant_and_no_error() {
    let world = World::new();
    let outcomes = join_all((0..100).map(|_| world.reserve("k"))).await;
    let granted = outcomes.iter().filter(|outcome| matches!(outcome.answer, Answer::Granted(_))).count();
    let in_progress = outcomes.iter().filter(|outcome| outcome.answer == Answer::InProgress).count();
    assert_eq!((granted, in_progress), (1, 99));
}

#[tokio::test]
async fn hundred_parallel_reclaims_have_one_winner() {
    let world = World::new();
    let grant = world.reserve("k").await.granted();
    world.abandon("k", grant).await;
    let seen = world.reserve("k").await.stale(StaleReason::InDoubt);
    let outcomes = join_all((0..100).map(|_| world.reclaim("k", seen))).await;
    let granted = outcomes.iter().filter(|outcome| matches!(outcome.answer, Answer::Granted(_))).count();
    let in_progress = outcomes.iter().filter(|outcome| outcome.answer == Answer::InProgress).count();
    assert_eq!((granted, in_progress), (1, 99));
}

#[tokio::test]
async fn resolve_fences_the_holder_and_is_audited_with_both_tokens() {
    let world = World::new();
    let holder = world.reserve("k").await.granted();
    let outcome = world.resolve("k", State::Completed(response(201))).await.unwrap();
    assert_eq!(outcome.answer, Answer::Resolved);
    assert_eq!(world.complete("k", holder, 500).await.answer, Answer::SupersededBy(response(201)));
    assert_eq!(world.reserve("k").await.replayed_status(), 201);
    assert_eq!(world.resolve("k", State::Released).await.unwrap().answer, Answer::AlreadyCompleted);
    assert_eq!(world.resolve("absent", State::Released).await.unwrap().answer, Answer::Absent);
    let audits = world.store.memory.audited();
    let [audit] = audits.as_slice() else { panic!("{audits:?}") };
    assert_eq!((audit.token_before, audit.token_after), (Some(holder.token), holder.token.next()));
}
