//! Answers that were replayed once, kept in memory: a stored answer never changes, so a repeat needs nobody else.

use std::{fmt, sync::Arc, time::Duration};

use ahash::RandomState;
use idem_core::Fingerprint;
use quick_cache::{
    OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};
use tokio::time::Instant;

use crate::ports::{KeyId, Replay};

/// The store judges the retention exactly; a copy is dropped this much sooner, so that it never outlives the original.
const EARLIER: Duration = Duration::from_secs(1);
/// A copy, its key and its place in the cache, without headers and body.
const ENTRY_BYTES: usize = 768;
/// The memory is in parts, each with a lock of its own; of no more bytes than a part's hot share can one answer be. Parts are rounded
/// up to a power of two in number, so each has at least half of this, which is enough for the largest answer. A memory smaller than
/// that leaves the largest out.
const PART_BYTES: u64 = 8 * 1024 * 1024;
const PARTS_MAX: usize = 64;
/// The share of answers that were asked for again, and at first of whichever came first; the rest is for the latest, because whoever
/// retries does so soon.
const HOT: f64 = 0.3;

/// Time that passes as it does for the store, counted from any beginning. Nobody's clock is compared with another's: the store says
/// how long an answer is good for, and this counts it down.
#[derive(Clone)]
pub struct Pace(Arc<dyn Fn() -> Duration + Send + Sync>);

/// Answers that were seen, for the same request of the same scope; bounded by bytes.
pub(crate) struct Replays {
    kept: Cache<KeyId, Arc<Copy>, ByBytes, RandomState>,
    pace: Pace,
}

/// How much of the memory an answer takes.
#[derive(Clone, Copy)]
struct ByBytes;

/// What can be said of a key without asking anybody.
pub(crate) enum Known {
    /// This is its answer.
    Replay(Replay),
    /// It is bound to another request.
    Mismatch,
}

struct Copy {
    fingerprint: Fingerprint,
    replay: Replay,
    until: Duration,
}

// === impl Pace ===

impl Pace {
    /// As this process's own clock runs.
    pub fn own() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }

    /// As `elapsed` says, which never goes back. For tests that move the store's clock.
    pub fn new(elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(elapsed))
    }

    fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::own()
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").finish_non_exhaustive()
    }
}

// === impl Replays ===

impl Replays {
    /// With room for about `bytes` of answers; for none at all with 0.
    pub(crate) fn new(bytes: u64, pace: Pace) -> Self {
        let options = OptionsBuilder::new()
            .shards(usize::try_from(bytes / PART_BYTES).unwrap_or(PARTS_MAX).clamp(1, PARTS_MAX))
            .hot_allocation(HOT)
            .estimated_items_capacity(usize::try_from(bytes).unwrap_or(usize::MAX) / ENTRY_BYTES)
            .weight_capacity(bytes)
            .build()
            .expect("capacities are given");
        Self { kept: Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default()), pace }
    }

    /// Now; take it before asking for an answer, so that the time on the way counts against the copy.
    pub(crate) fn moment(&self) -> Duration {
        self.pace.now()
    }

    /// Keeps an answer that was asked for at `asked`.
    pub(crate) fn keep(&self, key: &KeyId, fingerprint: Fingerprint, replay: &Replay, asked: Duration) {
        let Some(good_for) = replay.expires_in.checked_sub(EARLIER) else { return };
        let copy = Copy { fingerprint, replay: replay.clone(), until: asked + good_for };
        self.kept.insert(key.clone(), Arc::new(copy));
    }

    /// What the store would say: a key is bound to its request as long as its answer is kept.
    pub(crate) fn find(&self, key: &KeyId, fingerprint: &Fingerprint) -> Option<Known> {
        let copy = self.kept.get(key)?;
        if self.moment() >= copy.until {
            self.kept.remove(key);
            return None;
        }
        Some(if copy.fingerprint == *fingerprint { Known::Replay(copy.replay.clone()) } else { Known::Mismatch })
    }
}

// === impl ByBytes ===

impl Weighter<KeyId, Arc<Copy>> for ByBytes {
    fn weight(&self, _: &KeyId, copy: &Arc<Copy>) -> u64 {
        let response = &copy.replay.response;
        let headers: usize = response.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        (ENTRY_BYTES + headers + response.body().len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use idem_core::{IdempotencyKey, Response, Scope};

    use super::*;

    const ANSWERS: usize = 20_000;

    fn key(number: usize) -> KeyId {
        KeyId { scope: Scope::new("s").unwrap(), key: IdempotencyKey::new(format!("k{number}")).unwrap() }
    }

    fn replay(body: usize) -> Replay {
        Replay {
            response: Response::new(201, Vec::new(), vec![b'x'; body].into(), String::new()).unwrap(),
            expires_at: SystemTime::UNIX_EPOCH,
            expires_in: Duration::from_secs(3600),
            trace_context: Default::default(),
        }
    }

    #[test]
    fn when_memory_is_full_the_latest_answers_are_kept_and_those_that_were_asked_for_again() {
        let (replays, fingerprint) =
            (Replays::new(8 * 1024 * 1024, Pace::own()), Fingerprint::from_slice(&[7; 32]).unwrap());
        let is_kept = |number| matches!(replays.find(&key(number), &fingerprint), Some(Known::Replay(_)));
        for number in 0..ANSWERS {
            replays.keep(&key(number), fingerprint, &replay(256), replays.moment());
            assert!(is_kept(number), "{number} was not taken in");
            assert!(is_kept(0), "what is asked for again and again is gone after {number}");
        }
        let fit = 8 * 1024 * 1024 / (ENTRY_BYTES + 256);
        assert!(fit < ANSWERS / 2, "memory was never full");
        let lost = (ANSWERS - fit / 4..ANSWERS).filter(|number| !is_kept(*number)).count();
        assert_eq!(lost, 0, "of the latest {} answers", fit / 4);
    }

    #[test]
    fn the_latest_answers_are_kept_when_nobody_asks_for_any() {
        let (replays, fingerprint) =
            (Replays::new(8 * 1024 * 1024, Pace::own()), Fingerprint::from_slice(&[7; 32]).unwrap());
        for number in 0..ANSWERS {
            replays.keep(&key(number), fingerprint, &replay(256), replays.moment());
        }
        let fit = 8 * 1024 * 1024 / (ENTRY_BYTES + 256);
        let lost = (ANSWERS - fit / 2..ANSWERS).filter(|n| replays.find(&key(*n), &fingerprint).is_none()).count();
        assert_eq!(lost, 0, "of the latest {} answers", fit / 2);
    }

    #[test]
    fn the_largest_answer_fits_and_one_that_is_larger_than_its_part_is_left_out() {
        let (replays, fingerprint) =
            (Replays::new(64 * 1024 * 1024, Pace::own()), Fingerprint::from_slice(&[7; 32]).unwrap());
        replays.keep(&key(1), fingerprint, &replay(idem_core::BODY_MAX), replays.moment());
        assert!(replays.find(&key(1), &fingerprint).is_some());
        let small = Replays::new(1000, Pace::own());
        small.keep(&key(1), fingerprint, &replay(1000), small.moment());
        assert!(small.find(&key(1), &fingerprint).is_none());
    }
}
