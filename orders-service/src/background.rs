//! What goes on without anybody asking: sweeping holds, watching payments, sending refunds, applying early events.
//!
//! One look at the store tells for all four whether something is due, and when the next thing will be: an idle shop costs one small
//! question a second. Due times follow the store's clock, which this process cannot sleep by.

use std::{future::Future, sync::Arc, time::Duration};

use chassis::{
    shutdown::Shutdown,
    tasks::{self, Tasks},
};
use tokio::sync::Notify;

use crate::{
    error::OrdersError,
    shop::Shop,
    store::due::{self, Due},
};

/// Between two looks, however much is due: what is being done already is still due.
const LOOK_MIN: Duration = Duration::from_millis(250);

/// Between two looks at most, after something was due.
const LOOK_BUSY: Duration = Duration::from_secs(1);

/// Between two looks at most, when nothing has been for a while. What this process leaves open announces itself; what a process that died
/// has left open is found this much later.
const LOOK_CALM: Duration = Duration::from_secs(5);

/// Between two rounds, or looks, while the store fails.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts the look and the four loops; they end when the shutdown drains, after the round they are in.
pub(crate) fn start(shop: &Shop, tasks: &Tasks, shutdown: &Shutdown) {
    let wakes = Wakes { refunds: Arc::clone(&shop.refund_ordered), ..Wakes::default() };
    let start = Start { shop, tasks, shutdown };
    start.run("sweep holds", &wakes.holds, |shop| async move { shop.sweep_round().await });
    start.run("watch payments", &wakes.payments, |shop| async move { shop.watch_round().await });
    start.run("send refunds", &wakes.refunds, |shop| async move { shop.refund_round().await });
    start.run("apply events", &wakes.events, |shop| async move { shop.event_round().await });
    start.look(wakes);
}

/// Who is woken when something is due.
#[derive(Default)]
struct Wakes {
    holds: Arc<Notify>,
    payments: Arc<Notify>,
    refunds: Arc<Notify>,
    events: Arc<Notify>,
}

struct Start<'a> {
    shop: &'a Shop,
    tasks: &'a Tasks,
    shutdown: &'a Shutdown,
}

// === impl Shop ===

impl Shop {
    /// What is due, and when the next thing will be.
    pub(crate) async fn look(&self) -> Result<Due, OrdersError> {
        self.store.read("look", |tx| Box::pin(due::find(tx))).await
    }
}

// === impl Wakes ===

impl Wakes {
    /// Wakes whoever has something to do; returns how long until somebody has, as far as is in sight.
    fn tell(&self, due: &Due) -> Option<Duration> {
        let each = [(&self.holds, due.hold), (&self.payments, due.payment), (&self.refunds, due.refund)];
        let each = each.into_iter().chain([(&self.events, due.event.then_some(Duration::ZERO))]);
        each.filter_map(|(wake, left)| {
            let left = left?;
            if left.is_zero() {
                wake.notify_one();
            }
            Some(left)
        })
        .min()
    }
}

/// How long until the next look, and at most until the one after it when that finds nothing either.
fn pause(next: Option<Duration>, calm: Duration) -> (Duration, Duration) {
    if next == Some(Duration::ZERO) {
        return (LOOK_MIN, LOOK_BUSY);
    }
    (next.unwrap_or(calm).clamp(LOOK_MIN, calm), (calm * 2).min(LOOK_CALM))
}

// === impl Start ===

impl Start<'_> {
    fn look(&self, wakes: Wakes) {
        let (shop, shutdown) = (self.shop.clone(), self.shutdown.clone());
        let work = async move {
            let mut calm = LOOK_BUSY;
            while !shutdown.is_draining() {
                let wait = match tasks::round("look", shop.look()).await {
                    Some(Ok(due)) => {
                        let (wait, calmer) = pause(wakes.tell(&due), calm);
                        calm = calmer;
                        wait
                    }
                    // Whoever knows of something to do fails too, and says so.
                    Some(Err(_)) | None => AGAIN,
                };
                tokio::select! {
                    () = shutdown.draining() => {}
                    () = tokio::time::sleep(wait) => {}
                    () = shop.left_open.notified() => {
                        calm = LOOK_BUSY;
                        tokio::time::sleep(LOOK_MIN).await;
                    }
                }
            }
        };
        drop(self.tasks.spawn("look", work));
    }

    fn run<F>(&self, name: &'static str, wake: &Arc<Notify>, round: impl Fn(Shop) -> F + Send + 'static)
    where
        F: Future<Output = Result<usize, OrdersError>> + Send,
    {
        let (shop, shutdown, wake) = (self.shop.clone(), self.shutdown.clone(), Arc::clone(wake));
        let work = async move {
            let mut is_failing = false;
            while !shutdown.is_draining() {
                let done = tasks::round(name, round(shop.clone())).await;
                if let (Some(Err(error)), false) = (&done, is_failing) {
                    let error = error as &dyn std::error::Error;
                    tracing::warn!(work = name, error, "background work fails; trying on");
                }
                is_failing = !matches!(done, Some(Ok(_)));
                match done {
                    // Perhaps there is more.
                    Some(Ok(1..)) => {}
                    Some(Ok(0)) => tokio::select! {
                        () = shutdown.draining() => {}
                        () = wake.notified() => {}
                    },
                    Some(Err(_)) | None => tokio::select! {
                        () = shutdown.draining() => {}
                        () = tokio::time::sleep(AGAIN) => {}
                    },
                }
            }
        };
        drop(self.tasks.spawn(name, work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn woken(wakes: &Wakes) -> [bool; 4] {
        let each = [&wakes.holds, &wakes.payments, &wakes.refunds, &wakes.events];
        each.map(|wake| wake.notified().now_or_never().is_some())
    }

    const NOTHING: Due = Due { hold: None, payment: None, refund: None, event: false };

    fn millis(left: u64) -> Option<Duration> {
        Some(Duration::from_millis(left))
    }

    #[test]
    fn whoever_has_something_to_do_is_woken_and_nobody_else() {
        let table = [
            (NOTHING, [false; 4], None),
            (Due { hold: millis(0), ..NOTHING }, [true, false, false, false], millis(0)),
            (Due { payment: millis(0), hold: millis(60_000), ..NOTHING }, [false, true, false, false], millis(0)),
            (Due { refund: millis(0), payment: millis(400), ..NOTHING }, [false, false, true, false], millis(0)),
            (Due { event: true, ..NOTHING }, [false, false, false, true], millis(0)),
            (Due { payment: millis(400), hold: millis(600), ..NOTHING }, [false; 4], millis(400)),
        ];
        for (due, expected, next) in table {
            let wakes = Wakes::default();
            assert_eq!(wakes.tell(&due), next, "{due:?}");
            assert_eq!(woken(&wakes), expected, "{due:?}");
        }
    }

    #[test]
    fn looks_come_when_something_falls_due_and_are_rarer_the_longer_nothing_does() {
        assert_eq!(pause(millis(0), LOOK_CALM), (LOOK_MIN, LOOK_BUSY));
        assert_eq!(pause(millis(3), LOOK_BUSY).0, LOOK_MIN);
        assert_eq!(pause(millis(400), LOOK_CALM).0, Duration::from_millis(400));
        assert_eq!(pause(millis(60_000), LOOK_BUSY).0, LOOK_BUSY);
        let (mut calm, mut waits) = (LOOK_BUSY, Vec::new());
        for _ in 0..5 {
            let (wait, calmer) = pause(None, calm);
            waits.push(wait.as_secs());
            calm = calmer;
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
    }
}
