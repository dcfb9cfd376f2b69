//! Counts panics anywhere in this process: a task that panics is caught by its runtime, so a server's answer may not show it.

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
                COUNT.fetch_add(1, Ordering::SeqCst);
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
