//! What only Postgres can show: its constraints, its locks and its lost connections.

use std::sync::Arc;
use std::time::Duration;

use database::Clock;
use futures::future::{join, join_all};
use idem_core::{Verdict, decide};
use idem_service::Sealing;
use idem_service::batch::{BatchingStore, Flights};
use idem_service::store::{KeyId, Store, StoreError, Swap, SwapRequest, Version};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use super::bench::*;
use super::proxy::Proxy;

#[tokio::test]
async fn the_tables_refuse_what_no_command_leaves_behind_on_postgres() {
    let bench = Bench::postgres().await;
    bench.reserve(&key("held"), 1).await;
    bench.reserve(&key("completed"), 2).await;
    bench.step(&key("completed"), |r| completing(r, answer("x"))).await;
    let client = bench.postgres_client().await;
    for mistake in MISTAKES {
        let refused = client.batch_execute(mistake).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::CHECK_VIOLATION), "{mistake}");
    }
}

#[tokio::test]
async fn a_purge_leaves_a_reservation_that_is_just_being_made_on_postgres() {
    let bench = Bench::postgres().await;
    bench.reserve(&key("k"), 1).await;
    bench.step(&key("k"), releasing).await;
    bench.hand.advance(RETENTION);
    let mut client = bench.postgres_client().await;
    let reserving = client.transaction().await.unwrap();
    reserving
        .batch_execute(
            "UPDATE idem_keys SET state = 'in_progress', lease_until = now(), expires_at = NULL, version = version + 1",
        )
        .await
        .unwrap();
    // Neither waits for the other, nor takes the reservation for the finished record in whose place it stands.
    assert_eq!(bench.store.purge(10).await.unwrap(), 0);
    reserving.commit().await.unwrap();
    assert_eq!(bench.store.purge(10).await.unwrap(), 0);
    assert_eq!(number(&bench.load(&key("k")).await), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_races_a_new_generation_and_never_deletes_it_on_postgres() {
    let bench = Bench::postgres().await;
    for round in 0..100 {
        let key = key(&round.to_string());
        bench.reserve(&key, 1).await;
        bench.step(&key, releasing).await;
        bench.hand.advance(RETENTION);
        let over = bench.load(&key).await;
        let anew = next(&over, |_| reserving(2));
        match join(bench.store.purge(10), bench.swap(&key, over.version, anew)).await {
            (Ok(0), Swap::Won(won)) => assert_same(&bench.load(&key).await, &won),
            (Ok(1), Swap::Lost(truth)) => assert_eq!(truth.version, Version::Absent),
            other => panic!("round {round}: {other:?}"),
        }
    }
}

/// A deadlock takes Postgres a second to see, which is longer than a swap may take: one of them would be an error here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_purges_and_hand_outs_never_wait_in_a_circle_on_postgres() {
    let bench = Bench::postgres().await;
    let keys: Vec<KeyId> = (0..60).map(|n| key(&n.to_string())).collect();
    let worker = async |worker: u64| {
        let mut chance = Chance(worker + 1);
        for round in 0..60_u128 {
            let some: Vec<KeyId> = keys.iter().filter(|_| chance.one_in(2)).cloned().collect();
            let mut writes = Vec::new();
            for (key, seen) in some.iter().zip(bench.store.load(&some).await.unwrap()) {
                let mut command = |record: &idem_core::Record| match chance.below(4) {
                    0 => renewing(record),
                    1 => releasing(record),
                    2 => abandoning(record),
                    _ => reserving(u128::from(worker) * 1000 + round),
                };
                let (seen, verdict) = match &seen.record {
                    Some(record) => (seen.version, decide(Some(record), command(record))),
                    None => (Version::Absent, decide(None, reserving(u128::from(worker) * 1000 + round))),
                };
                if let Verdict::Put(put, _) = verdict {
                    writes.push(SwapRequest { key: key.clone(), seen, put: *put, audit: None, until: None });
                }
            }
            // Neither in the order of the keys nor in that of the others.
            let cut = chance.below(writes.len() as u64 + 1) as usize;
            writes.rotate_left(cut);
            bench.store.swap(writes).await.unwrap();
            if chance.one_in(4) {
                bench.hand.advance(RETENTION);
            }
            bench.store.purge(20).await.unwrap();
            bench.store.hand_out_stale(&every_scope(), 20, Duration::from_secs(1)).await.unwrap();
        }
    };
    join_all((0..4).map(worker)).await;
}

#[tokio::test]
async fn killed_connections_are_replaced_unnoticed_on_postgres() {
    let bench = Bench::postgres().await;
    let client = bench.postgres_client().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for n in 1..=10 {
        let key = key(&n.to_string());
        bench.reserve(&key, n).await;
        client.execute(kill, &[]).await.unwrap();
        assert_eq!(number(&bench.load(&key).await), 1);
        client.execute(kill, &[]).await.unwrap();
        bench.step(&key, |r| completing(r, answer("x"))).await;
        client.execute(kill, &[]).await.unwrap();
        assert_eq!(bench.store.count(&every_scope()).await.unwrap().completed, n as u64);
    }
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_won_all_the_same_on_postgres() {
    let bench = Bench::postgres().await;
    let proxy = Proxy::before(bench.url().unwrap()).await;
    let direct = open(proxy.url(), Clock::system(), Sealing::off()).await;
    let batching: Arc<dyn Store> = Arc::new(BatchingStore::new(direct.clone(), Flights::POSTGRES));
    for (name, store) in [("direct", direct), ("batching", batching)] {
        let write =
            |key: &KeyId, seen, put| vec![SwapRequest { key: key.clone(), seen, put, audit: None, until: None }];
        // The first write prepares the statement, whose reply must not be the one that is cut.
        store.swap(write(&key_in(name, "before"), Version::Absent, first(9))).await.unwrap();

        let key = key_in(name, "k");
        proxy.cut_the_next_reply();
        let reserved = store.swap(write(&key, Version::Absent, first(1))).await.unwrap();
        assert!(proxy.has_cut());
        let [Swap::Won(reserved)] = &reserved[..] else { panic!("{name}: {reserved:?}") };
        assert_same(&bench.load(&key).await, reserved);

        store.swap(write(&key_in(name, "after"), Version::Absent, first(8))).await.unwrap();
        let put = next(reserved, |r| completing(r, answer("x")));
        proxy.cut_the_next_reply();
        let completed = store.swap(write(&key, reserved.version, put.clone())).await.unwrap();
        assert!(proxy.has_cut());
        let [Swap::Won(completed)] = &completed[..] else { panic!("{name}: {completed:?}") };
        assert_same(&bench.load(&key).await, completed);
        assert_eq!(number(completed), 2);

        // Without a lost reply the same write is a second one, and loses.
        let again = store.swap(write(&key, reserved.version, put)).await.unwrap();
        assert!(matches!(again[..], [Swap::Lost(_)]), "{name}: {again:?}");

        // A batch is met again as a whole, and each of its writes has won once.
        let keys: Vec<_> = (0..100).map(|n| key_in(name, &n.to_string())).collect();
        let writes = keys.iter().zip(10..).flat_map(|(key, n)| write(key, Version::Absent, first(n)));
        proxy.cut_the_next_reply();
        let batch = store.swap(writes.collect()).await.unwrap();
        assert!(proxy.has_cut());
        for (key, answer) in keys.iter().zip(&batch) {
            let Swap::Won(reserved) = answer else { panic!("{name}: {answer:?}") };
            assert_same(&bench.load(key).await, reserved);
            assert_eq!(number(reserved), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_unavailable_in_time_and_welcome_back_on_postgres() {
    let bench = Bench::postgres().await;
    let proxy = Proxy::before(bench.url().unwrap()).await;
    let direct = open(proxy.url(), Clock::system(), Sealing::off()).await;
    let store = BatchingStore::new(direct, Flights::POSTGRES);
    let write = || vec![SwapRequest { key: key("k"), seen: Version::Absent, put: first(1), audit: None, until: None }];
    store.load(&[key("k")]).await.unwrap();
    for fault in [Proxy::go_down, Proxy::fall_silent] {
        fault(&proxy);
        for _ in 0..2 {
            let began = Instant::now();
            let (loaded, swapped) = join(store.load(&[key("k")]), store.swap(write())).await;
            let took = began.elapsed();
            assert!(matches!(loaded, Err(StoreError::Unavailable(_))), "{loaded:?}");
            assert!(matches!(swapped, Err(StoreError::Unavailable(_))), "{swapped:?}");
            assert!(took < Duration::from_millis(1800), "{took:?}");
        }
        proxy.recover();
        store.load(&[key("k")]).await.unwrap();
    }
    assert!(matches!(store.swap(write()).await.unwrap()[..], [Swap::Won(_)]));
}

/// Numbers that look like chance and are the same every time.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}
