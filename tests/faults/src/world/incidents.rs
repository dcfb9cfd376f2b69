//! What the world saw by itself, beside what the history tells.

use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::edge::CampaignClock;

/// Something worth telling; every clone of the list is the same.
#[derive(Clone, Debug)]
pub struct Incidents {
    clock: CampaignClock,
    all: Arc<Mutex<Vec<Incident>>>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub struct Incident {
    /// When.
    pub at_ms: u64,
    /// A sentence.
    pub what: String,
    /// It must not happen, whatever the nemesis does.
    pub is_violation: bool,
}

// === impl Incidents ===

impl Incidents {
    /// An empty list.
    pub fn new(clock: CampaignClock) -> Self {
        Self { clock, all: Arc::default() }
    }

    /// Something that can happen.
    pub fn note(&self, what: String) {
        tracing::warn!(at_ms = self.clock.now_ms(), "{what}");
        self.add(what, false);
    }

    /// Something that must not happen.
    pub fn violation(&self, what: String) {
        tracing::error!(at_ms = self.clock.now_ms(), "{what}");
        self.add(what, true);
    }

    /// All so far.
    pub fn snapshot(&self) -> Vec<Incident> {
        self.all.lock().expect("nobody panics while holding the list").clone()
    }

    fn add(&self, what: String, is_violation: bool) {
        let incident = Incident { at_ms: self.clock.now_ms(), what, is_violation };
        self.all.lock().expect("nobody panics while holding the list").push(incident);
    }
}
