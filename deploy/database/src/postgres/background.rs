//! Work on connections that must go on when the caller has gone.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Tasks that end with the pool they work for: nobody waits for them, and nothing is lost with them but connections.
#[derive(Clone, Default)]
pub(super) struct Background(Arc<Mutex<JoinSet<()>>>);

// === impl Background ===

impl Background {
    /// Runs `task` to its end, unless the pool goes first. Outside a runtime, where a future may be dropped too, the
    /// task is dropped unstarted; what it had to wait for then happens to whoever uses the connection next.
    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &runtime);
    }
}
