//! Stored answers, kept in memory: completed keys never change before their retention ends.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use database::Clock;
use idem_core::State;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use tokio::time::Instant;

use crate::store::{KeyId, Snapshot};

/// The store judges the retention exactly; a copy is dropped this much sooner, so that it never outlives the original.
const EARLIER: Duration = Duration::from_secs(1);
/// A record, its key and its place in the cache, without headers and body.
const ENTRY_BYTES: usize = 1024;
/// The memory is in parts, each with a lock of its own; of no more bytes than a part's hot share can one answer be. Parts are rounded
/// up to a power of two in number, so each has at least half of this, which is enough for the largest answer. A memory smaller than
/// that leaves the largest out.
const PART_BYTES: u64 = 8 * 1024 * 1024;
const PARTS_MAX: usize = 64;
/// The share of answers that were asked for again, and at first of whichever came first; the rest is for the latest, because whoever
/// retries does so soon.
const HOT: f64 = 0.3;

/// Snapshots of completed keys, bounded by bytes.
pub(super) struct Replays {
    kept: Option<Cache<KeyId, Arc<Copy>, ByBytes, RandomState>>,
    clock: Clock,
}

struct Copy {
    snapshot: Snapshot,
    taken: Moment,
    good_for: Duration,
}

/// How much of the memory an answer takes.
#[derive(Clone, Copy)]
struct ByBytes;

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
            let options = OptionsBuilder::new()
                .shards(usize::try_from(bytes / PART_BYTES).unwrap_or(PARTS_MAX).clamp(1, PARTS_MAX))
                .hot_allocation(HOT)
                .estimated_items_capacity(usize::try_from(bytes).unwrap_or(usize::MAX) / ENTRY_BYTES)
                .weight_capacity(bytes)
                .build()
                .expect("capacities are given");
            Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default())
        });
        Self { kept, clock }
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
        kept.insert(key.clone(), Arc::new(copy));
    }

    /// The stored answer under `key`, while the store is sure to have it still.
    pub(super) fn find(&self, key: &KeyId) -> Option<Snapshot> {
        let kept = self.kept.as_ref()?;
        let copy = kept.get(key)?;
        let age = self.moment().since(copy.taken);
        if age < copy.good_for {
            return Some(Snapshot { now: copy.snapshot.now + age, ..copy.snapshot.clone() });
        }
        kept.remove(key);
        None
    }
}

// === impl ByBytes ===

impl Weighter<KeyId, Arc<Copy>> for ByBytes {
    fn weight(&self, _: &KeyId, copy: &Arc<Copy>) -> u64 {
        let response = match copy.snapshot.record.as_ref().map(|r| &r.state) {
            Some(State::Completed(response)) => {
                let headers: usize = response.headers().iter().map(|(n, v)| n.len() + v.len()).sum();
                response.body().len() + headers
            }
            _ => 0,
        };
        (ENTRY_BYTES + response) as u64
    }
}

// === impl Moment ===

impl Moment {
    fn since(self, earlier: Moment) -> Duration {
        self.instant.saturating_duration_since(earlier.instant) + self.offset.saturating_sub(earlier.offset)
    }
}
