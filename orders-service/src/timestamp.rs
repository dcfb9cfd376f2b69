//! Moments of the store's clock.

use std::time::Duration;

/// Microseconds since the Unix epoch by the store's clock, as the store keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment `wait` later; the last one there is when the sum does not fit.
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)))
    }
}
