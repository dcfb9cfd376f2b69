//! Answers that were replayed once, kept in memory: a stored answer never changes, so a repeat needs nobody else.

use std::{fmt, sync::Arc, time::Duration};

use ahash::RandomState;
use idem_core::Fingerprint;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::ports::{KeyId, Replay};

/// The store judges the retention exactly; a copy is dropped this much sooner, so that it never outlives the original.
const EARLIER: Duration = Duration::from_secs(1);
/// A copy, its key and its place in the cache, without headers and body.
const ENTRY_BYTES: usize = 768;

/// Time that passes as it does for the store, counted from any beginning. Nobody's clock is compared with another's: the store says
/// how long an answer is good for, and this counts it down.
#[derive(Clone)]
pub struct Pace(Arc<dyn Fn() -> Duration + Send + Sync>);

/// Answers that were seen, for the same request of the same scope; bounded by bytes.
pub(crate) struct Replays {
    kept: Cache<KeyId, Arc<Copy>, RandomState>,
    bytes: u64,
    pace: Pace,
}

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
        let kept = Cache::builder()
            .max_capacity(bytes)
            .weigher(|_: &KeyId, copy: &Arc<Copy>| copy.weight())
            .build_with_hasher(RandomState::new());
        Self { kept, bytes, pace }
    }

    /// Now; take it before asking for an answer, so that the time on the way counts against the copy.
    pub(crate) fn moment(&self) -> Duration {
        self.pace.now()
    }

    /// Keeps an answer that was asked for at `asked`.
    pub(crate) fn keep(&self, key: &KeyId, fingerprint: Fingerprint, replay: &Replay, asked: Duration) {
        let Some(good_for) = replay.expires_in.checked_sub(EARLIER) else { return };
        let copy = Copy { fingerprint, replay: replay.clone(), until: asked + good_for };
        // One that fills the whole memory would only push the others out.
        if u64::from(copy.weight()) <= self.bytes {
            self.kept.insert(key.clone(), Arc::new(copy));
        }
    }

    /// What the store would say: a key is bound to its request as long as its answer is kept.
    pub(crate) fn find(&self, key: &KeyId, fingerprint: &Fingerprint) -> Option<Known> {
        let copy = self.kept.get(key)?;
        if self.moment() >= copy.until {
            self.kept.invalidate(key);
            return None;
        }
        Some(if copy.fingerprint == *fingerprint { Known::Replay(copy.replay.clone()) } else { Known::Mismatch })
    }
}

// === impl Copy ===

impl Copy {
    fn weight(&self) -> u32 {
        let response = &self.replay.response;
        let headers: usize = response.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        u32::try_from(ENTRY_BYTES + headers + response.body().len()).unwrap_or(u32::MAX)
    }
}
