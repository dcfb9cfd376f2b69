//! What goes on without anybody asking: sweeping holds, watching payments, sending refunds, applying early events.
//!
//! Each looks at an index every so often and writes only when something is due, so that due times follow the store's clock, which this
//! process cannot sleep by.

use std::{future::Future, sync::Arc, time::Duration};

use chassis::{
    shutdown::Shutdown,
    tasks::{self, Tasks},
};
use tokio::sync::Notify;

use crate::{error::OrdersError, shop::Shop};

/// Between two looks at payments, which fall due by the clock alone.
const LOOK: Duration = Duration::from_millis(250);

/// Between two looks at what announces itself, or is met by whoever needs it: seats whose hold is over are free for the next order at once.
const LOOK_SELDOM: Duration = Duration::from_secs(1);

/// Between two looks while the store fails.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Starts the four loops; they end when the shutdown drains, after the round they are in.
pub(crate) fn start(shop: &Shop, tasks: &Tasks, shutdown: &Shutdown) {
    let never = Arc::new(Notify::new());
    let ordered = Arc::clone(&shop.refund_ordered);
    let start = Start { shop, tasks, shutdown };
    start.run("sweep holds", LOOK_SELDOM, &never, |shop| async move { shop.sweep_round().await });
    start.run("watch payments", LOOK, &never, |shop| async move { shop.watch_round().await });
    start.run("send refunds", LOOK_SELDOM, &ordered, |shop| async move { shop.refund_round().await });
    start.run("apply events", LOOK_SELDOM, &never, |shop| async move { shop.event_round().await });
}

struct Start<'a> {
    shop: &'a Shop,
    tasks: &'a Tasks,
    shutdown: &'a Shutdown,
}

impl Start<'_> {
    fn run<F>(&self, name: &'static str, look: Duration, wake: &Arc<Notify>, round: impl Fn(Shop) -> F + Send + 'static)
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
                let pause = match done {
                    // Perhaps there is more.
                    Some(Ok(1..)) => Duration::ZERO,
                    Some(Ok(0)) => look,
                    Some(Err(_)) | None => LOOK_AGAIN,
                };
                tokio::select! {
                    () = shutdown.draining() => {}
                    () = wake.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        };
        drop(self.tasks.spawn(name, work));
    }
}
