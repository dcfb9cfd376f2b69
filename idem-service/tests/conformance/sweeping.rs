//! Handing out what is stale, and purging what is over.

use std::time::Duration;

use futures::future::join_all;
use idem_core::{Record, State};
use idem_service::store::{Entry, ScopePattern};

use super::bench::*;

const HIDE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.key.as_str()).collect()
}

async fn hand_out(bench: &Bench, limit: u32) -> Vec<Entry> {
    bench.store.hand_out_stale(&every_scope(), limit, HIDE).await.unwrap()
}

pub async fn only_finished_records_are_purged_and_only_when_their_retention_is_over(bench: &Bench) {
    for (n, name) in ["held", "doubtful", "completed", "released", "released late"].iter().enumerate() {
        bench.reserve(&key(name), n as u128 + 1).await;
    }
    bench.step(&key("doubtful"), abandoning).await;
    bench.step(&key("completed"), |r| completing(r, answer("x"))).await;
    bench.step(&key("released"), releasing).await;
    bench.hand.advance(MINUTE);
    bench.step(&key("released late"), releasing).await;
    assert_eq!(bench.store.purge(10).await.unwrap(), 0);

    bench.hand.advance(RETENTION - MINUTE);
    assert_eq!(bench.store.purge(10).await.unwrap(), 2);
    for (name, is_there) in
        [("held", true), ("doubtful", true), ("completed", false), ("released", false), ("released late", true)]
    {
        assert_eq!(bench.load(&key(name)).await.record.is_some(), is_there, "{name}");
    }
    bench.hand.advance(MINUTE);
    assert_eq!(bench.store.purge(10).await.unwrap(), 1);
}

pub async fn a_purge_deletes_no_more_than_its_limit(bench: &Bench) {
    for n in 1..=7 {
        bench.reserve(&key(&n.to_string()), n).await;
        bench.step(&key(&n.to_string()), releasing).await;
    }
    bench.hand.advance(RETENTION);
    let mut purged = Vec::new();
    for _ in 0..4 {
        purged.push(bench.store.purge(3).await.unwrap());
    }
    assert_eq!(purged, [3, 3, 1, 0]);
}

pub async fn stale_records_are_handed_out_longest_waiting_first(bench: &Bench) {
    // Waiting since: the end of the lease for a held record, the last change for one in doubt.
    let minutes: [(&str, bool); 4] = [("held 1", false), ("doubtful 2", true), ("held 3", false), ("doubtful 4", true)];
    for (n, (name, is_doubtful)) in minutes.into_iter().enumerate() {
        bench.reserve(&key(name), n as u128 + 1).await;
        if is_doubtful {
            bench.hand.advance(MINUTE);
            bench.step(&key(name), abandoning).await;
        }
        bench.hand.advance(MINUTE);
    }
    bench.reserve(&key("alive"), 8).await;
    bench.reserve(&key("completed"), 9).await;
    bench.step(&key("completed"), |r| completing(r, answer("x"))).await;

    assert_eq!(names(&hand_out(bench, 3).await), ["held 1", "doubtful 2", "held 3"]);
    assert_eq!(names(&hand_out(bench, 3).await), ["doubtful 4"]);
    assert_eq!(names(&hand_out(bench, 3).await), [""; 0]);
}

pub async fn a_record_handed_out_is_hidden_and_otherwise_unchanged(bench: &Bench) {
    let key = key("k");
    bench.reserve(&key, 1).await;
    assert_eq!(hand_out(bench, 10).await, []);
    bench.hand.advance(LEASE);
    let before = bench.load(&key).await;
    let handed_out = hand_out(bench, 10).await;
    assert_eq!(names(&handed_out), ["k"]);
    assert_same(&handed_out[0].snapshot, &before);
    assert!(handed_out[0].snapshot.record.as_ref().is_some_and(Record::is_lease_over));
    assert_eq!(hand_out(bench, 10).await, []);
    assert_same(&bench.load(&key).await, &before);

    bench.hand.advance(HIDE);
    assert_eq!(names(&hand_out(bench, 10).await), ["k"]);
    bench.win(&key, before.version, next(&before, |r| reclaiming(r, 2))).await;
}

pub async fn a_record_stays_hidden_whatever_becomes_of_it_but_not_in_a_new_generation(bench: &Bench) {
    let key = key("k");
    bench.reserve(&key, 1).await;
    bench.step(&key, abandoning).await;
    assert_eq!(names(&hand_out(bench, 10).await), ["k"]);
    bench.step(&key, |r| reclaiming(r, 2)).await;
    bench.step(&key, abandoning).await;
    assert_eq!(hand_out(bench, 10).await, []);
    bench.hand.advance(HIDE);
    assert_eq!(names(&hand_out(bench, 10).await), ["k"]);

    // Hidden for longer than its generation lives: the next one has nothing to do with that.
    bench.hand.advance(HIDE);
    let hide = RETENTION * 2;
    assert_eq!(bench.store.hand_out_stale(&every_scope(), 10, hide).await.unwrap().len(), 1);
    bench.step(&key, |r| reclaiming(r, 3)).await;
    bench.step(&key, releasing).await;
    bench.hand.advance(RETENTION);
    bench.step(&key, |_| reserving(4)).await;
    bench.step(&key, abandoning).await;
    assert_eq!(names(&hand_out(bench, 10).await), ["k"]);
}

pub async fn only_scopes_that_were_asked_for_are_handed_out(bench: &Bench) {
    for (n, scope) in ["rest/a", "rest/b", "other"].iter().enumerate() {
        bench.reserve(&key_in(scope, scope), n as u128 + 1).await;
        bench.step(&key_in(scope, scope), abandoning).await;
    }
    let asking = async |scopes: &[ScopePattern]| {
        let entries = bench.store.hand_out_stale(scopes, 10, HIDE).await.unwrap();
        assert!(entries.iter().all(|entry| entry.snapshot.record.as_ref().unwrap().state == State::InDoubt));
        entries.into_iter().map(|entry| entry.key.scope.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(asking(&[]).await, [""; 0]);
    assert_eq!(asking(&[ScopePattern::Exact("rest".into())]).await, [""; 0]);
    assert_eq!(asking(&[ScopePattern::Exact("rest/b".into())]).await, ["rest/b"]);
    assert_eq!(asking(&[ScopePattern::Prefix("rest/".into())]).await, ["rest/a"]);
    assert_eq!(asking(&every_scope()).await, ["other"]);
}

pub async fn a_record_is_handed_out_to_one_caller_only(bench: &Bench) {
    for n in 1..=40 {
        bench.reserve(&key(&n.to_string()), n).await;
        bench.step(&key(&n.to_string()), abandoning).await;
    }
    let callers = join_all((0..8).map(|_| hand_out(bench, 20))).await;
    let mut handed_out: Vec<_> = callers.iter().flatten().map(|entry| &entry.key).collect();
    // Rows that another caller was just taking are left for the next call.
    let rest = hand_out(bench, 40).await;
    handed_out.extend(rest.iter().map(|entry| &entry.key));
    handed_out.sort();
    let all = handed_out.len();
    handed_out.dedup();
    assert_eq!((all, handed_out.len()), (40, 40));
}
