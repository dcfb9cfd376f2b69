//! What is taken when metrics are read: what is open, and what waits.

use std::time::Duration;

use chassis::telemetry::{Observation, observe_with};

use crate::{
    shop::Shop,
    store::standing::{self, Standing},
};

/// Between two counts of what is open.
const OPEN_EVERY: Duration = Duration::from_secs(10);

/// What alerts look for begins at zero: a counter that first appears as one has not risen for whoever reads it.
fn begin_counters() {
    for kind in ["mismatch", "contradiction", "refund_refused"] {
        metrics::counter!("orders_alerts_total", "kind" => kind).increment(0);
    }
    for result in ["accepted", "duplicate", "malformed", "bad_signature", "too_old"] {
        metrics::counter!("orders_webhooks_total", "result" => result).increment(0);
    }
    metrics::counter!("orders_fenced_total").increment(0);
    metrics::counter!("orders_placed_total").increment(0);
    metrics::counter!("orders_holds_lapsed_total").increment(0);
}

/// Counts whenever metrics are read, as long as both are held.
pub(crate) fn watch(shop: &Shop) -> [Observation; 2] {
    begin_counters();
    let (open, waiting) = (shop.clone(), shop.clone());
    [
        observe_with(OPEN_EVERY, move || count_open(open.clone())),
        observe_with(Duration::ZERO, move || {
            count_waiting(&waiting);
            std::future::ready(())
        }),
    ]
}

/// A store that does not answer leaves no number: an old one would be a lie.
pub(crate) async fn count_open(shop: Shop) {
    let standing = shop.store.read("count what is open", |tx| Box::pin(async move { standing::count(tx).await })).await;
    let standing = standing.ok();
    let number = |count: fn(Standing) -> i64| standing.map_or(f64::NAN, |standing| count(standing) as f64);
    let seconds = |age: fn(Standing) -> i64| number(age) / 1e6;
    metrics::gauge!("orders_holds").set(number(|it| it.holds));
    metrics::gauge!("orders_payments_undecided").set(number(|it| it.undecided));
    metrics::gauge!("orders_payments_oldest_undecided_seconds").set(seconds(|it| it.oldest_undecided));
    metrics::gauge!("orders_payments_watched").set(number(|it| it.watched));
    metrics::gauge!("orders_refunds_open").set(number(|it| it.refunds));
    metrics::gauge!("orders_refunds_oldest_open_seconds").set(seconds(|it| it.oldest_refund));
    metrics::gauge!("orders_events_waiting").set(number(|it| it.events));
}

fn count_waiting(shop: &Shop) {
    let lanes = [
        ("place_orders", shop.orders.waiting()),
        ("begin_payments", shop.beginnings.waiting()),
        ("settle_payments", shop.verdicts.waiting()),
        ("receive_events", shop.events.waiting()),
    ];
    for (lane, waiting) in lanes {
        metrics::gauge!("orders_queue", "lane" => lane).set(waiting as f64);
    }
    if let Some(pool) = shop.store.pool() {
        metrics::gauge!("orders_pool_connections", "state" => "used").set(pool.used as f64);
        metrics::gauge!("orders_pool_connections", "state" => "idle").set(pool.idle as f64);
        metrics::gauge!("orders_pool_waiting").set(pool.waiting as f64);
    }
}
