//! Counts panics of the tasks in this process: one is caught by its runtime, so a server's answer may not show it.

use std::{
    panic,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static INSTALL: Once = Once::new();

/// Watches for panics from when it was made.
pub struct Panics {
    before: usize,
}

impl Panics {
    /// Begins to watch.
    pub fn watch() -> Self {
        INSTALL.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                // A test that fails elsewhere panics too, on a thread of its own name.
                let is_task = std::thread::current().name().is_none_or(|name| name.starts_with("tokio"));
                COUNT.fetch_add(usize::from(is_task), Ordering::SeqCst);
                usual(info);
            }));
        });
        Self { before: COUNT.load(Ordering::SeqCst) }
    }

    /// How many there were since.
    pub fn count(&self) -> usize {
        COUNT.load(Ordering::SeqCst) - self.before
    }

    /// Panics itself if there was one.
    #[track_caller]
    pub fn assert_none(&self) {
        assert_eq!(self.count(), 0, "the product panicked; what it said stands above");
    }
}
