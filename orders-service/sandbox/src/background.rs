//! Work that goes on without its request, until the server has answered its last one.

use chassis::shutdown::{Shutdown, Trigger};
use chassis::tasks::Tasks;
use chassis::trace::{self, Parent};
use tracing::info_span;

/// Timers and deliveries. They are cut off at the end, not waited for: the memory they would change ends with them.
#[derive(Clone)]
pub(crate) struct Background {
    tasks: Tasks,
    end: Shutdown,
}

/// Ends the background work.
pub(crate) struct End {
    tasks: Tasks,
    trigger: Trigger,
}

// === impl Background ===

impl Background {
    pub(crate) fn new() -> (End, Background) {
        let tasks = Tasks::new();
        let (trigger, end) = Shutdown::new();
        (End { tasks: tasks.clone(), trigger }, Background { tasks, end })
    }

    /// Runs `work` in a span of its own, in the trace of whoever asked for it: the request's span must not stay open with it.
    pub(crate) fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.draining();
        let cut_off = async move {
            tokio::select! {
                () = end => {}
                () = work => {}
            }
        };
        let span = info_span!(parent: None, "background work", otel.name = name);
        if let Some(asked_by) = trace::current_traceparent().as_deref().and_then(Parent::from_traceparent) {
            asked_by.adopt(&span);
        }
        span.in_scope(|| drop(self.tasks.spawn(name, cut_off)));
    }
}

// === impl End ===

impl End {
    /// Returns when nothing runs any more.
    pub(crate) async fn reach(self) {
        self.trigger.begin();
        self.tasks.wait().await;
    }
}
