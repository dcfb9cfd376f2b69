//! Waiting for a running holder. Time is paused: it jumps to the next timer when nothing else can happen.

use std::time::Duration;

use chassis::deadline::Deadline;
use idem_core::{Answer, Grant, StaleReason};
use tokio::time::{Instant, sleep};

use crate::world::{Expect, LEASE, World, attempt, key, reserve};

const WAIT: Duration = Duration::from_secs(10);
const WORK: Duration = Duration::from_secs(2);

/// What a waiter gets, and after how long, when `finish` is carried out two seconds into its wait.
async fn wait_while(world: &World, finish: impl AsyncFnOnce(Grant)) -> (Answer, Duration) {
    let grant = world.reserve("k").await.granted();
    let begun = Instant::now();
    let waiter = async {
        let outcome = world.reserve_waiting("k", WAIT).await;
        (outcome.answer, begun.elapsed())
    };
    let holder = async {
        sleep(WORK).await;
        finish(grant).await;
    };
    tokio::join!(waiter, holder).0
}

#[tokio::test(start_paused = true)]
async fn waiter_gets_the_replay_as_soon_as_it_is_stored() {
    let world = World::new();
    let (answer, waited) = wait_while(&world, async |grant| drop(world.complete("k", grant, 201).await)).await;
    assert!(matches!(answer, Answer::Replay(_)), "{answer:?}");
    assert_eq!(waited, WORK, "woken, not found at a later look");
}

#[tokio::test(start_paused = true)]
async fn waiter_gets_the_grant_after_a_release() {
    let world = World::new();
    let (answer, waited) = wait_while(&world, async |grant| drop(world.release("k", grant).await)).await;
    assert!(matches!(answer, Answer::Granted(Grant { attempts: 2, .. })), "{answer:?}");
    assert_eq!(waited, WORK);
}

#[tokio::test(start_paused = true)]
async fn waiter_hears_stale_after_an_abandon() {
    let world = World::new();
    let (answer, waited) = wait_while(&world, async |grant| drop(world.abandon("k", grant).await)).await;
    assert!(matches!(answer, Answer::Stale(_, _, StaleReason::InDoubt)), "{answer:?}");
    assert_eq!(waited, WORK);
}

#[tokio::test(start_paused = true)]
async fn waiter_hears_stale_when_the_lease_ends() {
    let world = World::new();
    let (answer, waited) = wait_while(&world, async |_| world.hand.advance(LEASE)).await;
    assert!(matches!(answer, Answer::Stale(_, _, StaleReason::LeaseExpired)), "{answer:?}");
    assert!(waited <= WORK + Duration::from_millis(250), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn waiter_finds_what_another_replica_has_stored() {
    let world = World::new();
    let replica = world.replica();
    let (answer, waited) = wait_while(&world, async |grant| drop(replica.complete("k", grant, 201).await)).await;
    assert!(matches!(answer, Answer::Replay(_)), "{answer:?}");
    assert!(waited <= WORK + Duration::from_millis(250), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn waiter_writes_nothing_and_gives_up_when_its_time_is_over() {
    let world = World::new();
    world.reserve("k").await.granted();
    world.store.take_calls();
    let begun = Instant::now();
    assert_eq!(world.reserve_waiting("k", WAIT).await.answer, Answer::InProgress);
    assert_eq!(begun.elapsed(), WAIT);
    let (loads, swaps) = world.store.take_calls();
    // The first try is the guess that the key is absent, and loses.
    assert_eq!(swaps, 1);
    assert!((40..60).contains(&loads), "{loads} looks in 10 s");
}

#[tokio::test(start_paused = true)]
async fn waiter_answers_before_its_deadline() {
    let world = World::new();
    world.reserve("k").await.granted();
    let deadline = Deadline::after(Duration::from_secs(1));
    let outcome = world.engine.reserve(&key("k"), reserve(attempt(), "asked"), WAIT, Some(deadline)).await;
    assert_eq!(outcome.unwrap().answer, Answer::InProgress);
    assert!(!deadline.is_over());
}

#[tokio::test(start_paused = true)]
async fn one_of_many_waiters_gets_the_grant_and_the_others_its_answer() {
    let world = World::new();
    let first = world.reserve("k").await.granted();
    let waiter = async || {
        let outcome = world.reserve_waiting("k", WAIT).await;
        if let Answer::Granted(grant) = outcome.answer {
            sleep(WORK).await;
            world.complete("k", grant, 201).await;
        }
        outcome.answer
    };
    let waiters = futures::future::join_all((0..100).map(|_| waiter()));
    let release = async {
        sleep(WORK).await;
        world.release("k", first).await;
    };
    let (answers, ()) = tokio::join!(waiters, release);
    let granted = answers.iter().filter(|answer| matches!(answer, Answer::Granted(_))).count();
    let replayed = answers.iter().filter(|answer| matches!(answer, Answer::Replay(_))).count();
    assert_eq!((granted, replayed), (1, 99));
}
