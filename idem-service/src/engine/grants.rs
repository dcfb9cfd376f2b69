//! Grants that this process made, remembered so that finishing one takes a single round trip.

use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use moka::sync::Cache;

use crate::store::{KeyId, Snapshot};

/// At most this many grants; one takes about half a kilobyte. A forgotten one costs its holder a second round trip.
const CAPACITY: u64 = 32_768;
/// Longer than the longest lease nobody is likely to come back.
const KEPT: Duration = Duration::from_secs(3600);

/// What this process saw when it granted a key. A memory, never the truth: it may only be swapped against.
pub(super) struct Grants {
    remembered: Cache<KeyId, Arc<Snapshot>, RandomState>,
}

// === impl Grants ===

impl Grants {
    pub(super) fn new() -> Self {
        Self {
            remembered: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(KEPT)
                .build_with_hasher(RandomState::new()),
        }
    }

    pub(super) fn recall(&self, key: &KeyId) -> Option<Arc<Snapshot>> {
        self.remembered.get(key)
    }

    pub(super) fn remember(&self, key: &KeyId, granted: &Snapshot) {
        self.remembered.insert(key.clone(), Arc::new(granted.clone()));
    }

    pub(super) fn forget(&self, key: &KeyId) {
        self.remembered.invalidate(key);
    }
}
