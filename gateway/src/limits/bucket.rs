//! A token bucket in one number: the moment at which it would be full again.
//!
//! Known as the generic cell rate algorithm. Nothing refills it, nothing sweeps it, and a request costs one compare-and-swap.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const SECOND: u64 = 1_000_000_000;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// Nanoseconds for one token.
    interval: u64,
    /// Nanoseconds by which requests may run ahead of their pace.
    tolerance: u64,
}

/// Full at first.
#[derive(Default)]
pub(super) struct Bucket {
    full_at: AtomicU64,
}

// === impl Pace ===

impl Pace {
    /// `rate` a second, `burst` at once (zero: as many as a second allows). None for no limit.
    pub(super) fn new(rate: u32, burst: u32) -> Option<Self> {
        let interval = SECOND.checked_div(rate.into())?.max(1);
        let burst = if burst == 0 { rate } else { burst };
        Some(Self { interval, tolerance: interval.saturating_mul(u64::from(burst) - 1) })
    }
}

// === impl Bucket ===

impl Bucket {
    /// Takes a token, or says after how long there will be one. `now` counts from any fixed moment.
    pub(super) fn take(&self, now: Duration, pace: &Pace) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let ahead = full_at.saturating_sub(now);
            if ahead > pace.tolerance {
                return Err(Duration::from_nanos(ahead - pace.tolerance));
            }
            let next = full_at.max(now).saturating_add(pace.interval);
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(current) => full_at = current,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(bucket: &Bucket, pace: &Pace, now: Duration) -> usize {
        (0..10_000).take_while(|_| bucket.take(now, pace).is_ok()).count()
    }

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_one_each_interval() {
        let (bucket, pace) = (Bucket::default(), Pace::new(10, 5).unwrap());
        let at = Duration::from_millis;
        assert_eq!(taken(&bucket, &pace, at(1000)), 5);
        assert_eq!(bucket.take(at(1000), &pace), Err(at(100)));
        assert_eq!(bucket.take(at(1040), &pace), Err(at(60)));
        assert_eq!(bucket.take(at(1100), &pace), Ok(()));
        assert_eq!(taken(&bucket, &pace, at(1300)), 2);
        // After a long pause it is full, and holds no more than that.
        assert_eq!(taken(&bucket, &pace, at(60_000)), 5);
    }

    #[test]
    fn without_a_burst_a_second_of_requests_may_come_at_once() {
        let (bucket, pace) = (Bucket::default(), Pace::new(7, 0).unwrap());
        assert_eq!(taken(&bucket, &pace, Duration::ZERO), 7);
        assert!(Pace::new(0, 5).is_none());
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_its_share_and_a_burst(
            rate in 1_u32..5000,
            burst in 1_u32..50,
            pauses in prop::collection::vec(0_u64..50_000_000, 1..300),
        ) {
            let (bucket, pace) = (Bucket::default(), Pace::new(rate, burst).unwrap());
            let (mut now, mut given) = (0_u64, Vec::new());
            for pause in pauses {
                now += pause;
                if bucket.take(Duration::from_nanos(now), &pace).is_ok() {
                    given.push(now);
                }
            }
            for (first, begin) in given.iter().enumerate() {
                for (last, end) in given.iter().enumerate().skip(first) {
                    let share = (end - begin) / pace.interval + u64::from(burst);
                    prop_assert!((last - first + 1) as u64 <= share);
                }
            }
        }
    }
}
