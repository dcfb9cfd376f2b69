//! Two clocks, two types: how long a holder is presumed alive, and how long an answer is replayed.

use std::time::Duration;

/// The lease when a caller gives none.
pub const LEASE_DEFAULT: LeaseDuration = LeaseDuration(Duration::from_secs(60));
/// The retention when a caller gives none.
pub const RETENTION_DEFAULT: RetentionPeriod = RetentionPeriod(Duration::from_secs(24 * 3600));
/// The longest that a Reserve waits for a running holder.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

// Shorter than a round trip to the store, and every holder would be reclaimed before it could act.
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(3600);
const RETENTION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a grant is presumed alive: 100 ms to 1 h, judged by the store's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeaseDuration(Duration);

/// How long a finished answer is replayed: longer than the lease, at most 30 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RetentionPeriod(Duration);

/// A duration that is out of bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DurationError {
    /// The lease is shorter than 100 ms or longer than 1 h.
    #[error("the lease must be between 100ms and 1h, not {0:?}")]
    Lease(Duration),
    /// The retention is over 30 days.
    #[error("the retention must be at most 30d, not {0:?}")]
    RetentionTooLong(Duration),
    /// The retention would be over before the holder is given up.
    #[error("the retention ({retention:?}) must be longer than the lease ({lease:?})")]
    RetentionNotLongerThanLease {
        /// As given.
        retention: Duration,
        /// As given.
        lease: Duration,
    },
}

impl LeaseDuration {
    /// Checks the bounds.
    pub fn new(lease: Duration) -> Result<Self, DurationError> {
        if (LEASE_MIN..=LEASE_MAX).contains(&lease) { Ok(Self(lease)) } else { Err(DurationError::Lease(lease)) }
    }

    /// The duration itself.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl RetentionPeriod {
    /// Checks the bounds, for a key that is held with `lease`.
    pub fn new(retention: Duration, lease: LeaseDuration) -> Result<Self, DurationError> {
        if retention > RETENTION_MAX {
            return Err(DurationError::RetentionTooLong(retention));
        }
        if retention <= lease.0 {
            return Err(DurationError::RetentionNotLongerThanLease { retention, lease: lease.0 });
        }
        Ok(Self(retention))
    }

    /// A retention that was checked when it was stored.
    pub fn stored(retention: Duration) -> Self {
        Self(retention)
    }

    /// The duration itself.
    pub fn get(self) -> Duration {
        self.0
    }
}
