//! Tasks that shutdown can wait for.

use futures::FutureExt as _;
use pin_project_lite::pin_project;
use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

/// A set of running tasks: cheap to clone, every clone is the same set.
///
/// A detached task goes on when its caller goes away (a client that hangs up, an RPC whose deadline fired); what waits
/// for it is [`Tasks::wait`] at the end of the process.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        let tracker = TaskTracker::new();
        // Closed only means that `wait` returns when the set is empty; tasks may still be spawned.
        tracker.close();
        Self { tracker }
    }

    /// Runs `future` to its end in the current span, whether or not anybody keeps the handle. A panic is logged with
    /// `name`.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(Watched { name, future }.instrument(Span::current())))
    }

    /// Runs a blocking function on a thread of its own pool, tracked like a task.
    #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn_blocking<F, T>(&self, name: &'static str, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let span = Span::current();
        self.tracker.spawn_blocking(move || {
            let _watch = PanicWatch { name };
            span.in_scope(work)
        })
    }

    /// Resolves when no task is running. Tasks that are spawned meanwhile are waited for too.
    pub async fn wait(&self) {
        self.tracker.wait().await;
    }

    /// How many tasks are running.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether no task is running.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs one round of work that must go on for as long as the process does; none when it panicked, which is logged and counted as
/// `name`.
///
/// A loop on a task of its own that ends by a panic would end for good, and nobody would miss it.
pub fn round<T>(name: &'static str, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(Watched { name, future: work }).catch_unwind().map(Result::ok)
}

pin_project! {
    /// A future whose panics are told of. Not an `async` block: one that takes a future in and awaits it is twice as large.
    struct Watched<F> {
        name: &'static str,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _watch = PanicWatch { name: this.name };
        this.future.poll(cx)
    }
}

/// Says which task panicked: its handle is usually dropped, so nobody else would.
struct PanicWatch {
    name: &'static str,
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "task panicked");
            metrics::counter!("tasks_panicked_total", "task" => self.name).increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn wait_returns_when_the_last_task_is_done_and_a_new_round_can_start() {
        let tasks = Tasks::new();
        tasks.wait().await;
        for _round in 0..2 {
            let (release, held) = oneshot::channel::<()>();
            drop(tasks.spawn("held", held));
            let waiting = tasks.clone();
            let waiter = Tasks::new().spawn("waiter", async move { waiting.wait().await });
            assert_eq!(tasks.len(), 1);
            assert!(!waiter.is_finished());
            release.send(()).unwrap();
            waiter.await.unwrap();
            assert!(tasks.is_empty());
        }
    }

    #[tokio::test]
    async fn a_task_outlives_its_handle() {
        let tasks = Tasks::new();
        let (done, seen) = oneshot::channel();
        drop(tasks.spawn("detached", async move { done.send(7).unwrap() }));
        assert_eq!(seen.await, Ok(7));
    }

    #[tokio::test]
    async fn a_task_runs_in_the_span_of_its_caller() {
        use tracing_subscriber::prelude::*;
        let _guard = tracing_subscriber::registry().set_default();
        let span = tracing::info_span!("caller");
        let inside = span.in_scope(|| Tasks::new().spawn("child", async { Span::current() })).await.unwrap();
        assert_eq!(inside, span);
    }

    #[tokio::test]
    async fn a_round_that_panics_is_over_and_the_next_one_is_as_good_as_ever() {
        assert_eq!(round("broken", async { panic!("on purpose") }).await, None::<u32>);
        assert_eq!(round("whole", async { 7 }).await, Some(7));
    }

    #[test]
    fn what_is_spawned_is_hardly_larger_than_what_it_runs() {
        let work = async {
            let held = [1_u8; 4096];
            tokio::task::yield_now().await;
            held
        };
        let size = std::mem::size_of_val(&work);
        assert!(std::mem::size_of_val(&Watched { name: "large", future: work }) <= size + 16);
    }

    #[tokio::test]
    async fn a_panic_does_not_keep_wait_waiting() {
        let tasks = Tasks::new();
        assert!(tasks.spawn("broken", async { panic!("on purpose") }).await.unwrap_err().is_panic());
        assert!(tasks.spawn_blocking("broken", || panic!("on purpose")).await.unwrap_err().is_panic());
        tasks.wait().await;
    }
}
