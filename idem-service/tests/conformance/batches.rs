//! Many at once.

use database::{Clock, StoreUrl};
use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use idem_core::{Answer, Command, Fingerprint, Put, Until};
use idem_service::batch::{BatchingStore, Flights};
use idem_service::engine::Engine;
use idem_service::store::{KeyId, Store, StoreError, Swap, SwapRequest, Version};

use super::bench::*;

fn write(key: &KeyId, seen: Version, put: Put) -> SwapRequest {
    SwapRequest { key: key.clone(), seen, put, audit: None, until: None }
}

fn has_won(answer: &Swap) -> bool {
    matches!(answer, Swap::Won(_))
}

fn snapshot(answer: &Swap) -> &idem_service::store::Snapshot {
    let (Swap::Won(snapshot) | Swap::Lost(snapshot)) = answer;
    snapshot
}

pub async fn answers_come_in_the_order_asked(bench: &Bench) {
    let names = ["m", "z", "a", "q", "b"].map(key);
    let present = bench.reserve(&names[1], 1).await;
    let stale = bench.reserve(&names[3], 2).await;
    bench.step(&names[3], renewing).await;
    let writes = vec![
        write(&names[0], Version::Absent, first(10)),
        write(&names[1], present.version, next(&present, |r| completing(r, answer("x")))),
        write(&names[2], Version::Absent, first(11)),
        write(&names[3], stale.version, next(&stale, releasing)),
        write(&names[4], present.version, next(&present, releasing)),
    ];
    let answers = bench.store.swap(writes).await.unwrap();
    assert_eq!(answers.iter().map(has_won).collect::<Vec<_>>(), [true, true, true, false, false]);
    let loaded = bench.store.load(&names).await.unwrap();
    for (answer, loaded) in answers.iter().zip(&loaded) {
        assert_eq!(snapshot(answer).record, loaded.record);
        assert_eq!(snapshot(answer).version, loaded.version);
    }
    assert_eq!(loaded.iter().map(number).collect::<Vec<_>>(), [1, 2, 1, 2, 0]);
}

pub async fn the_second_write_to_a_key_loses_to_the_first(bench: &Bench) {
    let (fresh, present) = (key("fresh"), key("present"));
    let seen = bench.reserve(&present, 1).await;
    let answers = bench
        .store
        .swap(vec![
            write(&fresh, Version::Absent, first(2)),
            write(&present, seen.version, next(&seen, |r| completing(r, answer("first")))),
            write(&fresh, Version::Absent, first(3)),
            write(&present, seen.version, next(&seen, releasing)),
            write(&fresh, Version::Absent, first(2)),
        ])
        .await
        .unwrap();
    assert_eq!(answers.iter().map(has_won).collect::<Vec<_>>(), [true, true, false, false, false]);
    assert_same(snapshot(&answers[2]), snapshot(&answers[0]));
    assert_same(snapshot(&answers[3]), snapshot(&answers[1]));
    assert_same(snapshot(&answers[4]), snapshot(&answers[0]));
    assert_same(&bench.load(&fresh).await, snapshot(&answers[0]));
    assert_same(&bench.load(&present).await, snapshot(&answers[1]));
}

pub async fn the_second_write_to_a_key_wins_where_the_first_was_wrong(bench: &Bench) {
    let key = key("k");
    let seen = bench.reserve(&key, 1).await;
    let writes = vec![
        write(&key, Version::Absent, first(2)),
        write(&key, seen.version, next(&seen, |r| completing(r, answer("x")))),
        write(&key, seen.version, next(&seen, releasing)),
    ];
    let answers = bench.store.swap(writes).await.unwrap();
    assert_eq!(answers.iter().map(has_won).collect::<Vec<_>>(), [false, true, false]);
    assert_same(snapshot(&answers[2]), snapshot(&answers[1]));
    assert_same(&bench.load(&key).await, snapshot(&answers[1]));
}

pub async fn a_key_loaded_twice_is_answered_twice(bench: &Bench) {
    let (present, absent) = (key("present"), key("absent"));
    let reserved = bench.reserve(&present, 1).await;
    let asked = [&present, &absent, &present, &absent, &present].map(KeyId::clone);
    let loaded = bench.store.load(&asked).await.unwrap();
    assert_eq!(loaded.iter().map(number).collect::<Vec<_>>(), [1, 0, 1, 0, 1]);
    for place in [0, 2, 4] {
        assert_same(&loaded[place], &reserved);
    }
}

pub async fn nothing_asked_is_nothing_answered(bench: &Bench) {
    assert_eq!(bench.store.load(&[]).await.unwrap(), []);
    assert_eq!(bench.store.swap(Vec::new()).await.unwrap(), []);
}

pub async fn batches_in_reverse_order_never_fail(bench: &Bench) {
    let keys: Vec<KeyId> = (0..100).map(|n| key(&format!("{n:03}"))).collect();
    let mut seen: Vec<_> = bench.store.load(&keys).await.unwrap();
    // Only where batches really meet are many rounds worth their time.
    let rounds = if let Some(StoreUrl::Postgres(_)) = bench.url() { 500 } else { 10 };
    for round in 0..rounds {
        let writes = |offset: u128| {
            let put = |place: usize, snapshot: &idem_service::store::Snapshot| match snapshot.record {
                None => first(place as u128 * 1000 + offset + 1),
                Some(_) => next(snapshot, renewing),
            };
            let writes = seen
                .iter()
                .enumerate()
                .map(|(place, snapshot)| write(&keys[place], snapshot.version, put(place, snapshot)));
            writes.collect::<Vec<_>>()
        };
        let (forth, mut back) = (writes(0), writes(1));
        back.reverse();
        let (forth, back) = join(bench.store.swap(forth), bench.store.swap(back)).await;
        let (forth, mut back) = (forth.unwrap(), back.unwrap());
        back.reverse();
        for (place, (one, other)) in forth.iter().zip(&back).enumerate() {
            assert!(has_won(one) != has_won(other), "round {round}, key {place}: {one:?} {other:?}");
            assert_same(snapshot(one), snapshot(other));
        }
        seen = forth.iter().map(|answer| snapshot(answer).clone()).collect();
    }
}

/// As two items of one call, or two callers whose statements travel together: the same request twice, and another one between.
pub async fn one_key_asked_for_twice_at_once_has_one_grant_and_another_request_a_mismatch(bench: &Bench) {
    let engine = Engine::new(bench.store.clone(), Clock::system(), 0);
    let request = |n: u128, body: u8| match reserving(n) {
        Command::Reserve { attempt_id, operation_id, lease, retention, trace_context, .. } => {
            let fingerprint = Fingerprint::from_slice(&[body; 32]).unwrap();
            Command::Reserve { fingerprint, attempt_id, operation_id, lease, retention, trace_context }
        }
        other => other,
    };
    for round in 0..10 {
        let key = key(&round.to_string());
        let bodies = [1, 2, 1, 2];
        let asked = bodies.iter().zip(1..).map(|(body, n)| engine.carry_out(&key, request(n, *body), None));
        let answers: Vec<Answer> = join_all(asked).await.into_iter().map(|outcome| outcome.unwrap().answer).collect();
        let winner = answers.iter().position(|answer| matches!(answer, Answer::Granted(_))).expect("one is granted");
        for (place, answer) in answers.iter().enumerate().filter(|(place, _)| *place != winner) {
            let expected = if bodies[place] == bodies[winner] { Answer::InProgress } else { Answer::Mismatch };
            assert_eq!(*answer, expected, "round {round}, place {place}, winner {winner}");
        }
    }
}

pub async fn one_bad_write_among_five_hundred_stays_with_its_writer(bench: &Bench) {
    const BAD: usize = 250;
    let keys: Vec<KeyId> = (0..500).map(|n| key(&n.to_string())).collect();
    let mut writes: Vec<SwapRequest> =
        keys.iter().zip(1..).map(|(key, n)| write(key, Version::Absent, first(n))).collect();
    writes[BAD].put.until = Until::Never;
    // Of one caller: all of it or nothing.
    let refused = bench.store.swap(writes.clone()).await;
    assert!(matches!(refused, Err(StoreError::Broken(_))), "{refused:?}");
    assert!(bench.store.load(&keys).await.unwrap().iter().all(|snapshot| snapshot.version == Version::Absent));
    // Of as many callers: only the one who brought it.
    let front = BatchingStore::new(bench.store.clone(), Flights::SQLITE);
    let answers = join_all(writes.into_iter().map(|write| front.swap(vec![write]))).await;
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Ok(answer) => assert!(place != BAD && answer.iter().all(has_won), "{place}: {answer:?}"),
            Err(error) => assert!(place == BAD && matches!(error, StoreError::Broken(_)), "{place}: {error:?}"),
        }
    }
    let loaded = bench.store.load(&keys).await.unwrap();
    assert!(loaded.iter().enumerate().all(|(place, snapshot)| (number(snapshot) == 1) == (place != BAD)));
}

pub async fn many_writes_are_one_batch(bench: &Bench) {
    let keys: Vec<KeyId> = (0..500).map(|n| key(&n.to_string())).collect();
    let writes = keys.iter().enumerate().map(|(n, key)| write(key, Version::Absent, first(n as u128 + 1)));
    assert!(bench.store.swap(writes.collect()).await.unwrap().iter().all(has_won));
    let loaded = bench.store.load(&keys).await.unwrap();
    let finishing = keys.iter().zip(&loaded).map(|(key, seen)| {
        let put = next(seen, |r| completing(r, answer(key.key.as_str().to_owned())));
        bench.store.swap(vec![write(key, seen.version, put)])
    });
    // No more at once than a pool can serve while each is waited for.
    let finished: Vec<_> = stream::iter(finishing).buffer_unordered(16).collect().await;
    assert!(finished.into_iter().all(|answers| answers.unwrap().iter().all(has_won)));
    let completed = bench.store.load(&keys).await.unwrap();
    assert!(completed.iter().all(|snapshot| number(snapshot) == 2));
}
