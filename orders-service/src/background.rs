//! What goes on without anybody asking: sweeping holds, watching payments, sending refunds, applying early events.
//!
//! Each looks at an index every quarter of a second and writes only when something is due, so that due times follow the store's clock,
//! which this process cannot sleep by.

use std::{future::Future, sync::Arc, time::Duration};

use chassis::{shutdown::Shutdown, tasks::Tasks};
use tokio::sync::Notify;

use crate::{error::OrdersError, shop::Shop};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Between two looks while the store fails.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Starts the four loops; they end when the shutdown drains, after the round they are in.
pub(crate) fn start(shop: &Shop, tasks: &Tasks, shutdown: &Shutdown) {
    let never = Arc::new(Notify::new());
    let refund_ordered = Arc::clone(&shop.refund_ordered);
    run("sweep holds", shop, tasks, shutdown, Arc::clone(&never), |shop| async move { shop.sweep_round().await });
    run("watch payments", shop, tasks, shutdown, Arc::clone(&never), |shop| async move { shop.watch_round().await });
    run("send refunds", shop, tasks, shutdown, refund_ordered, |shop| async move { shop.refund_round().await });
    run("apply events", shop, tasks, shutdown, never, |shop| async move { shop.event_round().await });
}

fn run<F>(
    name: &'static str,
    shop: &Shop,
    tasks: &Tasks,
    shutdown: &Shutdown,
    wake: Arc<Notify>,
    round: impl Fn(Shop) -> F + Send + 'static,
) where
    F: Future<Output = Result<usize, OrdersError>> + Send,
{
    let (shop, shutdown) = (shop.clone(), shutdown.clone());
    let work = async move {
        let mut was_failing = false;
        while !shutdown.is_draining() {
            let pause = match round(shop.clone()).await {
                // Perhaps there is more.
                Ok(1..) => Duration::ZERO,
                Ok(0) => LOOK,
                Err(error) => {
                    if !was_failing {
                        tracing::warn!(work = name, error = &error as &dyn std::error::Error, "background work fails; trying on");
                    }
                    was_failing = true;
                    LOOK_AGAIN
                }
            };
            if pause < LOOK_AGAIN {
                was_failing = false;
            }
            tokio::select! {
                () = shutdown.draining() => {}
                () = wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    };
    drop(tasks.spawn(name, work));
}
