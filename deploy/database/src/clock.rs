//! The store's clock: the engine's own now, plus an offset that tests move by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// The clock of a store: an offset added to the store's own now.
///
/// The store's own now is `clock_timestamp()` in Postgres and the wall clock in SQLite, so tests run over the real
/// engines and still cross an hour in no time. In production the offset is zero. Clones share the offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset_micros: Arc<AtomicU64>,
}

/// Moves a [`Clock`] forward by hand.
#[derive(Clone, Debug)]
pub struct Hand {
    clock: Clock,
}

// === impl Clock ===

impl Clock {
    /// The store's own now, untouched.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that runs with the store's own now and can be moved further forward through the [`Hand`].
    pub fn by_hand() -> (Self, Hand) {
        let clock = Self::default();
        (clock.clone(), Hand { clock })
    }

    /// What is added to the store's own now. Own SQL adds it too: `clock_timestamp() + offset`.
    pub fn offset(&self) -> Duration {
        Duration::from_micros(self.offset_micros.load(Ordering::SeqCst))
    }

    /// The offset as whole microseconds, the unit of every stored instant.
    pub fn offset_micros(&self) -> i64 {
        i64::try_from(self.offset_micros.load(Ordering::SeqCst)).unwrap_or(i64::MAX)
    }

    /// The store's now in SQLite.
    pub(crate) fn over_wall(&self) -> i64 {
        wall_micros().saturating_add(self.offset_micros())
    }
}

/// The wall clock in microseconds since 1970.
pub(crate) fn wall_micros() -> i64 {
    let since_1970 = chassis::clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

// === impl Hand ===

impl Hand {
    /// Moves the clock forward; every transaction that starts afterwards sees the later now.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.clock.offset_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_offset() {
        let (clock, hand) = Clock::by_hand();
        let other = clock.clone();
        hand.advance(Duration::from_secs(60));
        hand.clone().advance(Duration::from_millis(5));
        assert_eq!(other.offset(), Duration::from_millis(60_005));
        assert_eq!(clock.offset_micros(), 60_005_000);
        assert_eq!(Clock::system().offset_micros(), 0);
    }
}
