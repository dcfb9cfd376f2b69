//! Gauges that somebody has to be asked for: taken when metrics are read, and not more often than they are worth.

use futures::future::{BoxFuture, join_all};
use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// A scrape waits no longer than this; what comes later is seen by the next one.
const LIMIT: Duration = Duration::from_secs(2);

/// Takes gauges while it is held. An idle system stays idle: without a reader nothing is asked.
#[must_use = "nothing is observed any more once it is dropped"]
#[derive(Debug)]
pub struct Observation {
    id: u64,
}

type Look = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

struct Observer {
    id: u64,
    at_most_every: Duration,
    looked: Option<Instant>,
    look: Arc<Look>,
}

static OBSERVERS: Mutex<Vec<Observer>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Has `look` set its gauges whenever metrics are read, but not again within `at_most_every`.
pub fn observe_with<F>(at_most_every: Duration, look: impl Fn() -> F + Send + Sync + 'static) -> Observation
where
    F: Future<Output = ()> + Send + 'static,
{
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let look: Arc<Look> = Arc::new(move || Box::pin(look()));
    observers().push(Observer { id, at_most_every, looked: None, look });
    Observation { id }
}

/// Lets everybody look whose turn it is.
pub(crate) async fn observe() {
    let now = Instant::now();
    let due: Vec<Arc<Look>> = observers()
        .iter_mut()
        .filter(|observer| observer.looked.is_none_or(|looked| now.duration_since(looked) >= observer.at_most_every))
        .map(|observer| {
            observer.looked = Some(now);
            observer.look.clone()
        })
        .collect();
    join_all(due.iter().map(|look| timeout(LIMIT, look()))).await;
}

fn observers() -> MutexGuard<'static, Vec<Observer>> {
    OBSERVERS.lock().expect("nothing panics while it holds this lock")
}

// === impl Observation ===

impl Drop for Observation {
    fn drop(&mut self) {
        observers().retain(|observer| observer.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_looks_when_metrics_are_read_but_not_too_often_and_no_more_when_dropped() {
        let looks = Arc::new(AtomicU64::new(0));
        let counting = looks.clone();
        let observation = observe_with(Duration::from_secs(15), move || {
            counting.fetch_add(1, Ordering::Relaxed);
            async {}
        });
        let seen = || looks.load(Ordering::Relaxed);
        assert_eq!(seen(), 0);
        observe().await;
        observe().await;
        assert_eq!(seen(), 1);
        tokio::time::advance(Duration::from_secs(15)).await;
        observe().await;
        assert_eq!(seen(), 2);
        drop(observation);
        tokio::time::advance(Duration::from_secs(60)).await;
        observe().await;
        assert_eq!(seen(), 2);
    }
}
