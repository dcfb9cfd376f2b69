//! The peak of what is allocated while something is done.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use peak_alloc::PeakAlloc;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test of this binary runs.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// How many bytes more than before were allocated at the worst moment of `work`.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    (done, ALLOCATOR.peak_usage().saturating_sub(before))
}

/// The shortest of three tries: whatever else runs here only ever makes one longer.
pub fn time<T>(work: impl Fn() -> T) -> Duration {
    let tries = (0..3).map(|_| {
        let begun = Instant::now();
        std::hint::black_box(work());
        begun.elapsed()
    });
    tries.min().expect("three tries")
}
