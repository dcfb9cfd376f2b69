//! What is taken when metrics are read: how many keys stand where, and for how long the oldest has been open.
//!
//! What is open is counted by an index that holds nothing else; what is finished by looking at every record, so far more seldom.

use std::sync::Arc;
use std::time::Duration;

use chassis::telemetry::{Observation, observe_with};

use crate::store::{Open, ScopePattern, Store};

/// Between two counts of what is open.
const OPEN_EVERY: Duration = Duration::from_secs(10);
/// Between two counts of everything.
const ALL_EVERY: Duration = Duration::from_secs(600);

/// Counts the keys of `store` whenever metrics are read, as long as both are held.
pub(crate) fn watch(store: &Arc<dyn Store>) -> [Observation; 3] {
    begin_counters();
    let (open, all, pool) = (store.clone(), store.clone(), store.clone());
    [
        observe_with(OPEN_EVERY, move || count_open(open.clone())),
        observe_with(ALL_EVERY, move || count_finished(all.clone())),
        observe_with(Duration::ZERO, move || {
            count_pool(pool.as_ref());
            std::future::ready(())
        }),
    ]
}

/// What alerts look for begins at zero: a counter that first appears as one has not risen for whoever reads it.
fn begin_counters() {
    for command in ["reserve", "reclaim", "complete", "release", "abandon", "renew"] {
        for outcome in ["superseded", "store_unavailable", "store_timed_out", "store_broken"] {
            metrics::counter!("idem_outcomes_total", "command" => command, "outcome" => outcome).increment(0);
        }
    }
}

fn count_pool(store: &dyn Store) {
    let Some(pool) = store.pool() else { return };
    metrics::gauge!("idem_pool_connections", "state" => "used").set(pool.used as f64);
    metrics::gauge!("idem_pool_connections", "state" => "idle").set(pool.idle as f64);
    metrics::gauge!("idem_pool_waiting").set(pool.waiting as f64);
}

/// A store that does not answer leaves no number: an old one would be a lie.
async fn count_open(store: Arc<dyn Store>) {
    let open = store.count_open().await.ok();
    let number = |count: fn(Open) -> u64| open.map_or(f64::NAN, |open| count(open) as f64);
    let age =
        |age: fn(Open) -> Option<Duration>| open.map_or(f64::NAN, |open| age(open).unwrap_or_default().as_secs_f64());
    set("held", number(|open| open.held));
    set("lease_over", number(|open| open.lease_over));
    set("in_doubt", number(|open| open.in_doubt));
    metrics::gauge!("idem_oldest_open_seconds", "state" => "lease_over").set(age(|open| open.oldest_lease_over));
    metrics::gauge!("idem_oldest_open_seconds", "state" => "in_doubt").set(age(|open| open.oldest_in_doubt));
}

async fn count_finished(store: Arc<dyn Store>) {
    let every = [ScopePattern::Prefix(String::new())];
    let Ok(counts) = store.count(&every).await else { return };
    set("completed", counts.completed as f64);
    set("released", counts.released as f64);
    set("expired", counts.expired as f64);
}

fn set(state: &'static str, number: f64) {
    metrics::gauge!("idem_keys", "state" => state).set(number);
}
