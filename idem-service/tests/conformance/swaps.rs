//! The compare-and-swap of one key.

use std::time::Duration;

use futures::future::join_all;
use idem_core::{Command, Deadline, GrantedBy, IdempotencyKey, Until};
use idem_service::store::{Audit, AuditRow, StoreError, Swap, SwapRequest, Version};

use super::bench::*;

pub async fn an_absent_key_is_written_once(bench: &Bench) {
    let key = key("k");
    let absent = bench.load(&key).await;
    assert_eq!((absent.record, absent.version), (None, Version::Absent));

    let won = bench.reserve(&key, 1).await;
    assert_eq!(won.version, Version::At { operation_id: operation(1), number: 1 });
    assert_eq!(won.record, Some(first(1).record));
    assert_eq!(won.times.created_at, won.now);
    assert_eq!(won.times.updated_at, won.now);
    assert_eq!(won.times.lease_until, Some(won.now + LEASE));
    assert_eq!((won.times.completed_at, won.times.expires_at), (None, None));

    let truth = bench.lose(&key, Version::Absent, first(2)).await;
    assert_same(&truth, &won);
    assert_same(&bench.load(&key).await, &won);
}

pub async fn a_present_key_is_written_at_its_version(bench: &Bench) {
    let key = key("k");
    let reserved = bench.reserve(&key, 1).await;
    bench.hand.advance(Duration::from_secs(5));
    let completed = bench.win(&key, reserved.version, next(&reserved, |r| completing(r, answer("x")))).await;
    assert_eq!(completed.version, Version::At { operation_id: operation(1), number: 2 });
    assert_eq!(completed.times.created_at, reserved.times.created_at);
    assert!(completed.times.updated_at >= reserved.times.updated_at + Duration::from_secs(5));
    assert_eq!(completed.times.lease_until, None);
    assert_eq!(completed.times.completed_at, Some(completed.times.updated_at));
    assert_eq!(completed.times.expires_at, Some(completed.times.updated_at + RETENTION));
    assert_same(&bench.load(&key).await, &completed);
}

pub async fn a_stale_version_loses_and_hears_the_truth(bench: &Bench) {
    let key = key("k");
    let seen = bench.reserve(&key, 1).await;
    let renewed = bench.win(&key, seen.version, next(&seen, renewing)).await;
    let late = next(&seen, |r| completing(r, answer("late")));
    assert_same(&bench.lose(&key, seen.version, late.clone()).await, &renewed);
    assert_same(&bench.load(&key).await, &renewed);

    // Nor does a number that was never written, or the number of another operation, match anything.
    let ahead = Version::At { operation_id: operation(1), number: 3 };
    let other = Version::At { operation_id: operation(2), number: 2 };
    for seen in [ahead, other] {
        assert_same(&bench.lose(&key, seen, late.clone()).await, &renewed);
    }
    // Where nothing is, nothing can be seen.
    let absent = bench.lose(&key_in("rest/tenant", "other"), seen.version, late).await;
    assert_eq!((absent.record, absent.version), (None, Version::Absent));
}

pub async fn what_was_won_is_what_is_loaded(bench: &Bench) {
    let key = key("k");
    let mut won = vec![bench.reserve(&key, 1).await];
    assert_same(&bench.load(&key).await, &won[0]);
    let steps: [fn(&idem_core::Record) -> Command; 8] = [
        renewing,
        abandoning,
        |r| reclaiming(r, 2),
        releasing,
        |_| reserving_for(3, Duration::from_millis(100), Duration::from_secs(30 * 24 * 3600)),
        abandoning,
        |r| reclaiming(r, 4),
        |r| completing(r, answer("done")),
    ];
    for step in steps {
        let snapshot = bench.step(&key, step).await;
        assert_same(&bench.load(&key).await, &snapshot);
        won.push(snapshot);
    }
    let last = won.last().unwrap();
    assert_eq!(number(last), 9);
    let record = last.record.as_ref().unwrap();
    assert_eq!((record.granted_by, record.attempts, record.token.0), (GrantedBy::Reclaim, 4, 4));
    assert_eq!(record.past_attempts, [attempt(1), attempt(2), attempt(3)]);
    assert_eq!(record.retention.get(), Duration::from_secs(30 * 24 * 3600));
}

pub async fn a_purged_key_starts_again_under_a_version_of_its_own(bench: &Bench) {
    let key = key("k");
    let old = bench.reserve(&key, 1).await;
    let released = bench.step(&key, releasing).await;
    bench.hand.advance(RETENTION);
    assert_eq!(bench.store.purge(10).await.unwrap(), 1);
    assert_eq!(bench.load(&key).await.version, Version::Absent);

    let new = bench.reserve(&key, 2).await;
    assert_eq!((number(&new), number(&old)), (1, 1));
    let late = next(&old, |r| completing(r, answer("late")));
    assert_same(&bench.lose(&key, old.version, late.clone()).await, &new);
    assert_same(&bench.lose(&key, released.version, late).await, &new);
    bench.win(&key, new.version, next(&new, releasing)).await;
}

pub async fn a_new_generation_begins_exactly_when_the_retention_is_over(bench: &Bench) {
    let key = key("k");
    bench.reserve(&key, 1).await;
    let released = bench.step(&key, releasing).await;
    let same = next(&released, |_| reserving(2));
    let mut anew = first(2);
    anew.record.token = released.record.as_ref().unwrap().token.next();

    // Whoever takes the retention for over while it is not, loses.
    let truth = bench.lose(&key, released.version, anew.clone()).await;
    assert_same(&truth, &released);

    // And whoever takes it for running when it is over.
    bench.hand.advance(RETENTION);
    let truth = bench.lose(&key, released.version, same).await;
    assert_eq!((truth.version, truth.times), (released.version, released.times));
    assert_eq!(truth.record.as_ref().unwrap().deadline, Deadline::Passed);

    let put = next(&truth, |_| reserving(2));
    assert_eq!(put, anew);
    let renewed = bench.win(&key, truth.version, put).await;
    assert_eq!(renewed.version, Version::At { operation_id: operation(2), number: 3 });
    assert_eq!(renewed.times.created_at, renewed.times.updated_at);
    assert_same(&bench.load(&key).await, &renewed);
}

pub async fn a_generation_keeps_its_beginning_and_its_token_through_release_and_reclaim(bench: &Bench) {
    let key = key("k");
    let reserved = bench.reserve(&key, 1).await;
    let minute = Duration::from_secs(60);
    for (step, n) in [(0, 2), (1, 3), (2, 4)] {
        bench.hand.advance(minute);
        bench.step(&key, releasing).await;
        bench.hand.advance(minute);
        let again = bench.step(&key, |_| reserving(n)).await;
        let record = again.record.unwrap();
        assert_eq!((record.operation_id, record.token.0), (operation(1), step + 2));
        assert_eq!(again.times.created_at, reserved.times.created_at);
        assert!(again.times.updated_at >= reserved.times.updated_at + minute * 2);
    }
}

pub async fn a_deadline_of_another_state_is_refused_and_nothing_is_written(bench: &Bench) {
    let key = key("k");
    let mut endless = first(1);
    endless.until = Until::Never;
    let write = SwapRequest { key: key.clone(), seen: Version::Absent, put: endless, audit: None, until: None };
    let refused = bench.store.swap(vec![write]).await;
    assert!(matches!(refused, Err(StoreError::Broken(_))), "{refused:?}");
    assert_eq!(bench.load(&key).await.version, Version::Absent);

    let reserved = bench.reserve(&key, 1).await;
    let mut leased = next(&reserved, abandoning);
    leased.until = Until::Lease(lease(LEASE));
    let write = SwapRequest { key: key.clone(), seen: reserved.version, put: leased, audit: None, until: None };
    assert!(matches!(bench.store.swap(vec![write]).await, Err(StoreError::Broken(_))));
    assert_same(&bench.load(&key).await, &reserved);
}

pub async fn keys_are_told_apart_by_their_bytes(bench: &Bench) {
    let long = "🎟".repeat(200);
    let names = [
        "abc",
        "ABC",
        "Abc",
        "abc ",
        " abc",
        "a b",
        "'",
        "\"",
        "\\",
        "\\'",
        "%",
        "_",
        "a%",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "ı",
        "i",
        "I",
        "0",
        "00",
        "null",
        "NULL",
        "'); DROP TABLE idem_keys; --",
        "$1",
        "{a,b}",
        "[\"a\"]",
        "\u{200b}",
        "日本",
        &long,
    ];
    for (n, name) in names.iter().enumerate() {
        bench.reserve(&key(name), n as u128 + 1).await;
    }
    for (n, name) in names.iter().enumerate() {
        let record = bench.load(&key(name)).await.record.unwrap();
        assert_eq!(record.operation_id, operation(n as u128 + 1), "{name}");
        bench.step(&key(name), |r| completing(r, answer(name.as_bytes().to_vec()))).await;
    }
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    for (n, snapshot) in bench.store.load(&keys).await.unwrap().iter().enumerate() {
        assert_eq!(snapshot.record.as_ref().unwrap().operation_id, operation(n as u128 + 1), "{}", names[n]);
    }
}

pub async fn scopes_are_worlds_of_their_own(bench: &Bench) {
    let scopes = ["rest/a", "rest/A", "rest/ab", "rest/é", "rest/%", "rest/a/b", "r", &"s".repeat(200)];
    for (n, scope) in scopes.iter().enumerate() {
        bench.reserve(&key_in(scope, "same"), n as u128 + 1).await;
    }
    for (n, scope) in scopes.iter().enumerate() {
        let record = bench.load(&key_in(scope, "same")).await.record.unwrap();
        assert_eq!(record.operation_id, operation(n as u128 + 1), "{scope}");
    }
    // Where the scope ends and the key begins is part of the name.
    assert_eq!(bench.load(&key_in("rest", "/asame")).await.version, Version::Absent);
}

pub async fn fifty_at_once_on_an_absent_key_have_one_winner(bench: &Bench) {
    let key = key("k");
    let answers = join_all((1..=50).map(|n| bench.swap(&key, Version::Absent, first(n)))).await;
    let winners: Vec<_> = answers.iter().filter(|answer| matches!(answer, Swap::Won(_))).collect();
    assert_eq!(winners.len(), 1);
    let stands = bench.load(&key).await;
    for answer in &answers {
        let (Swap::Won(snapshot) | Swap::Lost(snapshot)) = answer;
        assert_same(snapshot, &stands);
    }
}

pub async fn an_audit_is_written_with_its_swap_or_not_at_all(bench: &Bench) {
    let key = key("k");
    let audit = |action, reason: &str| {
        let (operator, service) = ("Ada".to_owned(), "console".to_owned());
        Some(Audit { action, reason: reason.to_owned(), operator, service })
    };
    let settling = |seen: &idem_service::store::Snapshot| {
        next(seen, |r| Command::Resolve { seen: Some(r.token), outcome: idem_core::State::Released })
    };
    let reserved = bench.reserve(&key, 1).await;
    let doubtful = bench.step(&key, abandoning).await;
    assert_eq!(bench.audits().await, []);

    let reasons = audit("release", "the acquirer's \"no\"\nby phone");
    let write = |seen, audit| SwapRequest { key: key.clone(), seen, put: settling(&doubtful), audit, until: None };
    let lost = bench.store.swap(vec![write(reserved.version, audit("abandon", "late"))]).await.unwrap();
    assert!(matches!(lost[..], [Swap::Lost(_)]));
    assert_eq!(bench.audits().await, []);

    let won = bench.store.swap(vec![write(doubtful.version, reasons)]).await.unwrap();
    let [Swap::Won(settled)] = &won[..] else { panic!("lost") };
    let audits = bench.audits().await;
    assert_eq!(audits.len(), 1);
    assert_eq!((&audits[0].key, audits[0].operation_id), (&key, operation(1)));
    assert_eq!((audits[0].token_before.unwrap().0, audits[0].token_after.0), (1, 2));
    let said = |line: &AuditRow| [&line.action, &line.reason, &line.operator, &line.service].map(String::clone);
    assert_eq!(said(&audits[0]), ["release", "the acquirer's \"no\"\nby phone", "Ada", "console"]);
    assert_eq!(audits[0].at, settled.times.updated_at);

    let page = async |name: &str, before| {
        let name = IdempotencyKey::new(name).unwrap();
        bench.store.audits(&every_scope(), Some(&name), before, 10).await.unwrap()
    };
    assert_eq!(page(key.key.as_str(), None).await, audits);
    assert_eq!(page(key.key.as_str(), Some(audits[0].id)).await, []);
    assert_eq!(page("another", None).await, []);
    assert_eq!(bench.store.audits(&[], None, None, 10).await.unwrap(), []);
}
