//! Deadlines, by the store's clock.

use std::time::Duration;

use idem_core::{Deadline, StateName, decide};
use idem_service::store::{KeyId, Snapshot, Version};

use super::bench::*;

const MICRO: Duration = Duration::from_micros(1);
const A_MOMENT: Duration = Duration::from_millis(100);

fn deadline(snapshot: &Snapshot) -> Deadline {
    snapshot.record.as_ref().unwrap().deadline
}

/// Looks at `key` from shortly before its deadline, `away` from now, until it has passed. Where time stands still it is moved onto
/// the very microsecond; where it runs, each look must judge by the very time that it reports.
async fn judges_exactly(bench: &Bench, key: &KeyId, away: Duration) -> Snapshot {
    if bench.is_frozen() {
        bench.hand.advance(away - MICRO);
        assert_eq!(deadline(&bench.load(key).await), Deadline::Ahead);
        bench.hand.advance(MICRO);
        return bench.load(key).await;
    }
    assert_eq!(deadline(&bench.load(key).await), Deadline::Ahead);
    bench.hand.advance(away - A_MOMENT);
    loop {
        let seen = bench.load(key).await;
        let until = seen.times.lease_until.or(seen.times.expires_at).unwrap();
        let is_passed = seen.now >= until;
        assert_eq!(deadline(&seen), if is_passed { Deadline::Passed } else { Deadline::Ahead }, "{seen:?}");
        if is_passed {
            return seen;
        }
    }
}

pub async fn a_lease_is_over_at_its_deadline_to_the_microsecond(bench: &Bench) {
    let key = key("k");
    bench.reserve(&key, 1).await;
    let over = judges_exactly(bench, &key, LEASE).await;
    assert!(over.record.as_ref().unwrap().is_lease_over());
    // The holder may still finish: nobody has reclaimed.
    bench.win(&key, over.version, next(&over, |r| completing(r, answer("late but mine")))).await;
}

pub async fn a_retention_is_over_at_its_deadline_to_the_microsecond(bench: &Bench) {
    let key = key("k");
    for (n, finish) in [(1, releasing as fn(&_) -> _), (2, |r: &_| completing(r, answer("x")))] {
        bench.reserve(&key, n).await;
        bench.step(&key, finish).await;
        assert_eq!(bench.store.purge(10).await.unwrap(), 0);
        let over = judges_exactly(bench, &key, RETENTION).await;
        assert!(over.record.as_ref().unwrap().is_over());
        assert_eq!(bench.store.purge(10).await.unwrap(), 1);
    }
}

pub async fn durations_are_added_to_the_stores_now_to_the_microsecond(bench: &Bench) {
    let key = key("k");
    let (held, kept) = (Duration::new(1, 234_567_891), Duration::new(86_400, 987_654_321));
    let put = put(decide(None, reserving_for(1, held, kept)));
    let reserved = bench.win(&key, Version::Absent, put).await;
    assert_eq!(reserved.times.lease_until, Some(reserved.now + Duration::from_micros(1_234_567)));
    let released = bench.step(&key, releasing).await;
    let kept = Duration::from_micros(86_400_987_654);
    assert_eq!(released.times.expires_at, Some(released.now + kept));
    assert_eq!(released.record.as_ref().unwrap().retention.get(), kept);
    assert_same(&bench.load(&key).await, &released);
}

pub async fn what_is_open_never_expires(bench: &Bench) {
    let (held, doubtful) = (key("held"), key("doubtful"));
    bench.reserve(&held, 1).await;
    bench.reserve(&doubtful, 2).await;
    bench.step(&doubtful, abandoning).await;
    bench.hand.advance(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(bench.store.purge(10).await.unwrap(), 0);
    let snapshot = bench.load(&held).await;
    assert!(snapshot.record.as_ref().is_some_and(|r| r.is_lease_over() && !r.is_over()));
    let record = bench.load(&doubtful).await.record.unwrap();
    assert_eq!((record.state.name(), record.deadline), (StateName::InDoubt, Deadline::Ahead));
}
