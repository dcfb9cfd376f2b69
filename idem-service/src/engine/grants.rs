//! Grants that this process made, remembered so that finishing one takes a single round trip.

use std::sync::Arc;

use ahash::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::store::{KeyId, Snapshot};

/// At most this many grants; one takes about half a kilobyte. A forgotten one costs its holder a second round trip.
const CAPACITY: usize = 32_768;

/// What this process saw when it granted a key. A memory, never the truth: it may only be swapped against.
pub(super) struct Grants {
    remembered: Cache<KeyId, Arc<Snapshot>, UnitWeighter, RandomState>,
}

// === impl Grants ===

impl Grants {
    pub(super) fn new() -> Self {
        let options = OptionsBuilder::new()
            // Hot are those that came first; nearly all room is for the latest, so that grants which nobody finishes make way.
            .hot_allocation(0.05)
            .estimated_items_capacity(CAPACITY)
            .weight_capacity(CAPACITY as u64)
            .build()
            .expect("capacities are given");
        let (hasher, lifecycle) = (RandomState::new(), DefaultLifecycle::default());
        Self { remembered: Cache::with_options(options, UnitWeighter, hasher, lifecycle) }
    }

    pub(super) fn recall(&self, key: &KeyId) -> Option<Arc<Snapshot>> {
        self.remembered.get(key)
    }

    pub(super) fn remember(&self, key: &KeyId, granted: &Snapshot) {
        self.remembered.insert(key.clone(), Arc::new(granted.clone()));
    }

    pub(super) fn forget(&self, key: &KeyId) {
        self.remembered.remove(key);
    }
}
