//! Many at once.

use std::time::Duration;

use idem_core::StateName;
use tokio::time::Instant;

use crate::{
    scripted::{Act, Gate, created, sold_out, unknown},
    world::{Counters, World, key_id, post, settle},
};

/// A small generator of its own, so that a failure can be repeated from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap() % bound
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_at_once_execute_once() {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(created())));
    let requests: Vec<_> = (0..100).map(|_| world.start(post("k"))).collect();
    gate.arrived().await;
    settle().await;
    gate.open();
    let mut statuses = [0, 0];
    for request in requests {
        let answer = request.await.unwrap();
        match answer.status {
            201 => statuses[0] += 1,
            409 => statuses[1] += 1,
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert_eq!((statuses, world.inner.executions()), ([1, 99], 1));
    let first = world.post("k").await;
    for _ in 0..100 {
        let replay = world.post("k").await;
        assert_eq!(
            (replay.is_replay(), &replay.body, replay.header("location")),
            (true, &first.body, Some("/things/1"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_who_wait_all_get_the_one_answer() {
    let world = World::new();
    world.inner.will(Act::Slow(Duration::from_secs(3), Box::new(created())));
    let requests: Vec<_> = (0..100).map(|_| world.start(post("k").header("prefer", "wait=10"))).collect();
    let mut replays = 0;
    for request in requests {
        let answer = request.await.unwrap();
        assert_eq!(answer.status, 201);
        replays += usize::from(answer.is_replay());
    }
    assert_eq!((replays, world.inner.executions()), (99, 1));
}

/// The client goes away at a random moment, in a random one of the ways that an operation can take. Whatever it was told, its key
/// ends completed, executed to an effect once; and everybody is counted.
#[tokio::test(start_paused = true)]
async fn clients_that_go_away_at_random_moments_leave_every_key_with_one_answer() {
    let seed = uuid::Uuid::new_v4().as_u128() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    let counters = Counters::default();
    let _installed = metrics::set_default_local_recorder(&counters);
    let mut gone = 0;
    let mut requests = 0;
    for nth in 0..1000 {
        let world = World::new();
        let delay = Duration::from_millis(random.next() % 400);
        let act = [created, sold_out, unknown][random.below(3)]();
        world.inner.will(Act::Slow(delay, Box::new(act)));
        let client = world.start(post("k"));
        let patience = Duration::from_millis(random.next() % 500);
        // Some go away before anything has run at all.
        if random.below(10) > 0 {
            tokio::time::sleep(patience).await;
        }
        if !client.is_finished() {
            client.abort();
        }
        let has_begun = !world.store.calls().is_empty();
        let is_gone = client.await.is_err();
        gone += u64::from(is_gone && has_begun);
        requests += u64::from(has_begun);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_ne!(world.state("k"), Some(StateName::InProgress), "{nth}");
        world.inner.forget();
        let answer = world.post("k").await;
        requests += 1;
        assert_eq!((answer.status, world.state("k")), (201, Some(StateName::Completed)), "{nth}");
    }
    assert!(gone > 100, "{gone} early closes are no test");
    assert_eq!(counters.get("client_gone_total"), gone);
    let outcomes: u64 = counters.all().iter().filter(|(name, _)| name.starts_with("outcomes")).map(|(_, n)| n).sum();
    assert_eq!(outcomes, requests);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_one_another() {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(created())));
    let held = world.start(post("held"));
    gate.arrived().await;
    let start = Instant::now();
    for nth in 0..50 {
        assert_eq!(world.post(&format!("k{nth}")).await.status, 201);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(world.store.state(&key_id("held")), Some(StateName::InProgress));
    gate.open();
    assert_eq!(held.await.unwrap().status, 201);
}
