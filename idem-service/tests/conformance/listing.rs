//! Lists and counts.

use std::time::Duration;

use idem_core::{State, StateName};
use idem_service::store::{Counts, Cursor, Entry, Filter, ScopePattern, SwapRequest, Version};

use super::bench::*;

const MINUTE: Duration = Duration::from_secs(60);

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.key.as_str()).collect()
}

async fn list(bench: &Bench, filter: &Filter) -> Vec<Entry> {
    bench.store.list(filter, None, 500).await.unwrap()
}

/// One record in each state, each a minute younger than the one before.
async fn one_of_each(bench: &Bench) {
    for (n, name) in ["completed", "released", "doubtful", "over", "alive"].iter().enumerate() {
        bench.reserve(&key(name), n as u128 + 1).await;
        match *name {
            "completed" => drop(bench.step(&key(name), |r| completing(r, answer("body"))).await),
            "released" => drop(bench.step(&key(name), releasing).await),
            "doubtful" => drop(bench.step(&key(name), abandoning).await),
            _ => {}
        }
        bench.hand.advance(if *name == "alive" { MINUTE / 2 } else { MINUTE });
    }
}

pub async fn pages_follow_each_other_without_gaps_or_repeats(bench: &Bench) {
    // Batches of five share one time of change; there scope and key decide, byte by byte.
    let scopes = ["b", "a", "B", "é"];
    let mut expected = Vec::new();
    for (batch, scope) in scopes.into_iter().enumerate() {
        let names = ["2", "10", "ä", "Z", "z"].map(|name| key_in(scope, &format!("{name}-{batch}")));
        let writes = names.iter().enumerate().map(|(n, key)| SwapRequest {
            key: key.clone(),
            seen: Version::Absent,
            put: first((batch * 10 + n) as u128 + 1),
            audit: None,
            until: None,
        });
        bench.store.swap(writes.collect()).await.unwrap();
        let mut sorted = names.to_vec();
        sorted.sort();
        expected.extend(sorted);
        bench.hand.advance(MINUTE);
    }
    let filter = Filter { scopes: every_scope(), ..Filter::default() };
    for page_size in [1, 3, 5, 7, 20, 500] {
        let (mut listed, mut after): (Vec<_>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page = bench.store.list(&filter, after.as_ref(), page_size).await.unwrap();
            assert!(page.len() <= page_size as usize);
            let Some(last) = page.last() else { break };
            after = Some(Cursor { since: last.snapshot.since(), key: last.key.clone() });
            listed.extend(page.into_iter().map(|entry| entry.key));
        }
        assert_eq!(listed, expected, "pages of {page_size}");
    }
}

pub async fn filters_hold_together(bench: &Bench) {
    one_of_each(bench).await;
    let every = Filter { scopes: every_scope(), ..Filter::default() };
    assert_eq!(names(&list(bench, &every).await), ["completed", "released", "doubtful", "over", "alive"]);
    // Nothing is as old as the longest age that can be asked for, and asking is no fault.
    for older_than in [Duration::from_secs(10_000 * 366 * 24 * 3600), Duration::MAX] {
        let ancient = Filter { older_than, ..every.clone() };
        assert!(list(bench, &ancient).await.is_empty(), "{older_than:?}");
    }

    let states = |states: &[StateName]| Filter { states: states.to_vec(), ..every.clone() };
    assert_eq!(names(&list(bench, &states(&[StateName::InProgress])).await), ["over", "alive"]);
    assert_eq!(
        names(&list(bench, &states(&[StateName::Released, StateName::InDoubt])).await),
        ["released", "doubtful"]
    );

    let older = |older_than| Filter { older_than, ..every.clone() };
    assert_eq!(names(&list(bench, &older(MINUTE)).await), ["completed", "released", "doubtful", "over"]);
    assert_eq!(names(&list(bench, &older(MINUTE * 3)).await), ["completed", "released"]);
    assert_eq!(names(&list(bench, &older(MINUTE * 60)).await), [""; 0]);

    let both = Filter { older_than: MINUTE, ..states(&[StateName::InProgress]) };
    assert_eq!(names(&list(bench, &both).await), ["over"]);

    // What is over is listed until it is purged.
    bench.hand.advance(RETENTION);
    assert_eq!(list(bench, &every).await.len(), 5);
    assert_eq!(bench.store.purge(10).await.unwrap(), 2);
    assert_eq!(names(&list(bench, &every).await), ["doubtful", "over", "alive"]);
}

pub async fn whoever_asks_again_makes_an_open_key_no_younger(bench: &Bench) {
    let stuck = key("stuck");
    bench.reserve(&stuck, 1).await;
    let begun = bench.step(&stuck, abandoning).await;
    assert_eq!(bench.store.count_open().await.unwrap().in_doubt, 1);
    for attempt in 2..4 {
        bench.hand.advance(MINUTE * 20);
        bench.step(&stuck, |r| reclaiming(r, attempt)).await;
        bench.step(&stuck, abandoning).await;
    }
    let every = Filter { scopes: every_scope(), ..Filter::default() };
    let old = Filter { older_than: MINUTE * 40, ..every.clone() };
    assert_eq!(names(&list(bench, &old).await), ["stuck"]);
    let mine = Filter { operation_id: begun.record.map(|record| record.operation_id), ..every.clone() };
    assert_eq!(names(&list(bench, &mine).await), ["stuck"]);
    let other = Filter { operation_id: Some(operation(999)), ..every };
    assert_eq!(names(&list(bench, &other).await), [""; 0]);
    assert_eq!(bench.store.count(&every_scope()).await.unwrap().oldest_in_doubt_at, Some(begun.times.created_at));

    bench.reserve(&key("alive"), 50).await;
    bench.reserve(&key("over"), 60).await;
    let open = bench.store.count_open().await.unwrap();
    assert_eq!((open.held, open.lease_over, open.in_doubt, open.oldest_lease_over), (2, 0, 1, None));
    assert!(open.oldest_in_doubt.is_some_and(|age| age >= MINUTE * 40 && age < MINUTE * 50), "{open:?}");
    bench.hand.advance(MINUTE * 20);
    let open = bench.store.count_open().await.unwrap();
    assert_eq!((open.held, open.lease_over, open.in_doubt), (0, 2, 1));
    assert!(open.oldest_lease_over.is_some_and(|age| age >= MINUTE * 20 && age < MINUTE * 30), "{open:?}");
}

pub async fn scope_patterns_are_no_wildcards(bench: &Bench) {
    let scopes = ["rest/a", "rest/ab", "rest/%", "rest/_", "REST/a", "rest", "é/a", "a\\b", "ab"];
    for (n, scope) in scopes.iter().enumerate() {
        bench.reserve(&key_in(scope, "k"), n as u128 + 1).await;
        bench.hand.advance(MINUTE);
    }
    let seen = async |scopes: Vec<ScopePattern>| {
        let entries = list(bench, &Filter { scopes: scopes.clone(), ..Filter::default() }).await;
        let counts = bench.store.count(&scopes).await.unwrap();
        assert_eq!(counts.in_progress as usize, entries.len());
        entries.into_iter().map(|entry| entry.key.scope.as_str().to_owned()).collect::<Vec<_>>()
    };
    let exact = |scope: &str| ScopePattern::Exact(scope.into());
    let prefix = |prefix: &str| ScopePattern::Prefix(prefix.into());
    assert_eq!(seen(vec![]).await, [""; 0]);
    assert_eq!(seen(vec![exact("rest/a")]).await, ["rest/a"]);
    assert_eq!(seen(vec![exact("rest/%")]).await, ["rest/%"]);
    assert_eq!(seen(vec![prefix("rest/a")]).await, ["rest/a", "rest/ab"]);
    assert_eq!(seen(vec![prefix("rest/%")]).await, ["rest/%"]);
    assert_eq!(seen(vec![prefix("rest/_")]).await, ["rest/_"]);
    assert_eq!(seen(vec![exact("rest/_")]).await, ["rest/_"]);
    assert_eq!(seen(vec![exact("a\\b")]).await, ["a\\b"]);
    assert_eq!(seen(vec![prefix("a\\")]).await, ["a\\b"]);
    assert_eq!(seen(vec![prefix("é")]).await, ["é/a"]);
    assert_eq!(seen(vec![exact("rest"), exact("nobody"), prefix("é/")]).await, ["rest", "é/a"]);
    assert_eq!(seen(vec![prefix("rest/a"), exact("rest/a"), prefix("rest/ab")]).await, ["rest/a", "rest/ab"]);
    assert_eq!(seen(every_scope()).await, scopes);
}

pub async fn listings_never_carry_bodies(bench: &Bench) {
    one_of_each(bench).await;
    let filter = Filter { scopes: every_scope(), states: vec![StateName::Completed], ..Filter::default() };
    let entries = list(bench, &filter).await;
    let record = entries[0].snapshot.record.as_ref().unwrap();
    let State::Completed(response) = &record.state else { panic!("{record:?}") };
    assert_eq!((response.status(), response.body().len(), response.resource_id()), (201, 0, "order-1"));
    assert_eq!(response.headers(), answer("").headers());
    // Everything else is what a look at the key shows.
    let loaded = bench.load(&key("completed")).await;
    assert_eq!((entries[0].snapshot.version, entries[0].snapshot.times), (loaded.version, loaded.times));
    let mut bodiless = loaded.record.unwrap();
    bodiless.state = State::Completed(response.clone());
    assert_eq!(&bodiless, record);
}

pub async fn open_keys_are_counted_by_scope(bench: &Bench) {
    let count = async |scopes: &[ScopePattern]| {
        let live = bench.store.count_live(scopes).await.unwrap();
        live.into_iter().map(|live| (live.scope.as_str().to_owned(), live.keys)).collect::<Vec<_>>()
    };
    assert_eq!(count(&every_scope()).await, []);
    // Alive, lease over and in doubt; what is finished does not count.
    one_of_each(bench).await;
    bench.reserve(&key_in("elsewhere", "k"), 9).await;
    let all = [("rest/tenant".to_owned(), 3), ("elsewhere".to_owned(), 1)];
    assert_eq!(count(&every_scope()).await, all);
    assert_eq!(count(&[ScopePattern::Exact("elsewhere".into())]).await, all[1..]);
    assert_eq!(count(&[ScopePattern::Prefix("rest/".into())]).await, all[..1]);
    bench.hand.advance(RETENTION);
    assert_eq!(count(&every_scope()).await, all, "they never expire");
    bench.step(&key("alive"), releasing).await;
    assert_eq!(count(&[ScopePattern::Prefix("rest/".into())]).await, [("rest/tenant".to_owned(), 2)]);
}

pub async fn states_are_counted(bench: &Bench) {
    let count = async || bench.store.count(&every_scope()).await.unwrap();
    assert_eq!(count().await, Counts::default());
    one_of_each(bench).await;
    bench.reserve(&key_in("elsewhere", "k"), 9).await;
    let doubtful = bench.load(&key("doubtful")).await.times.created_at;
    let counts = Counts {
        in_progress: 3,
        lease_over: 1,
        in_doubt: 1,
        completed: 1,
        released: 1,
        expired: 0,
        oldest_in_doubt_at: Some(doubtful),
    };
    assert_eq!(count().await, counts);
    let elsewhere = bench.store.count(&[ScopePattern::Exact("elsewhere".into())]).await.unwrap();
    assert_eq!(elsewhere, Counts { in_progress: 1, ..Counts::default() });

    bench.step(&key("alive"), abandoning).await;
    bench.hand.advance(RETENTION);
    let later = Counts { in_progress: 2, lease_over: 2, in_doubt: 2, completed: 0, released: 0, expired: 2, ..counts };
    assert_eq!(count().await, later);
}
