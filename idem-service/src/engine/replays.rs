//! Stored answers, kept in memory: completed keys never change before their retention ends.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use database::Clock;
use idem_core::State;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::store::{KeyId, Snapshot};

/// The store judges the retention exactly; a copy is dropped this much sooner, so that it never outlives the original.
const EARLIER: Duration = Duration::from_secs(1);
/// A record, its key and its place in the cache, without headers and body.
const ENTRY_BYTES: usize = 1024;

/// Snapshots of completed keys, bounded by bytes.
pub(super) struct Replays {
    kept: Option<Cache<KeyId, Arc<Copy>, RandomState>>,
    bytes: u64,
    clock: Clock,
}

struct Copy {
    snapshot: Snapshot,
    taken: Moment,
    good_for: Duration,
}

/// A point in time by this process's clock, moved along with the store's.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    instant: Instant,
    offset: Duration,
}

// === impl Replays ===

impl Replays {
    /// Keeps about `bytes` of answers; none at all for 0. `clock` is the store's.
    pub(super) fn new(bytes: u64, clock: Clock) -> Self {
        let kept = (bytes > 0).then(|| {
            Cache::builder()
                .max_capacity(bytes)
                .weigher(|_: &KeyId, copy: &Arc<Copy>| copy.weight())
                .build_with_hasher(RandomState::new())
        });
        Self { kept, bytes, clock }
    }

    /// Now; take it before asking the store, so that the time on the way counts against the copy.
    pub(super) fn moment(&self) -> Moment {
        Moment { instant: Instant::now(), offset: self.clock.offset() }
    }

    /// Keeps `snapshot`, asked for at `asked`, if it is an answer with some life left.
    pub(super) fn keep(&self, key: &KeyId, snapshot: &Snapshot, asked: Moment) {
        let Some(kept) = &self.kept else { return };
        let is_completed = snapshot.record.as_ref().is_some_and(|r| matches!(r.state, State::Completed(_)));
        let Some(expires_at) = snapshot.times.expires_at.filter(|_| is_completed) else { return };
        let left = expires_at.duration_since(snapshot.now).unwrap_or_default();
        let Some(good_for) = left.checked_sub(EARLIER) else { return };
        let copy = Copy { snapshot: snapshot.clone(), taken: asked, good_for };
        // One that fills the whole memory would only push the others out.
        if u64::from(copy.weight()) <= self.bytes {
            kept.insert(key.clone(), Arc::new(copy));
        }
    }

    /// The stored answer under `key`, while the store is sure to have it still.
    pub(super) fn find(&self, key: &KeyId) -> Option<Snapshot> {
        let kept = self.kept.as_ref()?;
        let copy = kept.get(key)?;
        let age = self.moment().since(copy.taken);
        if age < copy.good_for {
            return Some(Snapshot { now: copy.snapshot.now + age, ..copy.snapshot.clone() });
        }
        kept.invalidate(key);
        None
    }
}

// === impl Copy ===

impl Copy {
    fn weight(&self) -> u32 {
        let response = match self.snapshot.record.as_ref().map(|r| &r.state) {
            Some(State::Completed(response)) => {
                let headers: usize = response.headers().iter().map(|(n, v)| n.len() + v.len()).sum();
                response.body().len() + headers
            }
            _ => 0,
        };
        u32::try_from(ENTRY_BYTES + response).unwrap_or(u32::MAX)
    }
}

// === impl Moment ===

impl Moment {
    fn since(self, earlier: Moment) -> Duration {
        self.instant.saturating_duration_since(earlier.instant) + self.offset.saturating_sub(earlier.offset)
    }
}
