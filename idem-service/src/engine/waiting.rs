//! Callers that wait for a running holder, woken when this process finishes their key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ahash::RandomState;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::store::KeyId;

/// Enough that callers of different keys do not meet; a finished key locks one of them for a look.
const SHARDS: usize = 64;

type Bells = HashMap<KeyId, Arc<Notify>>;

/// One bell per key that somebody waits for.
pub(super) struct Waiting {
    hasher: RandomState,
    shards: Box<[Mutex<Bells>]>,
}

/// A place among those who wait for a key; dropping it leaves.
pub(super) struct Place<'w> {
    waiting: &'w Waiting,
    key: &'w KeyId,
    bell: Arc<Notify>,
}

// === impl Waiting ===

impl Waiting {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Joins those who wait for `key`.
    pub(super) fn join<'w>(&'w self, key: &'w KeyId) -> Place<'w> {
        let bell = self.bells(key).entry(key.clone()).or_default().clone();
        Place { waiting: self, key, bell }
    }

    /// Wakes everybody who waits for `key`.
    pub(super) fn ring(&self, key: &KeyId) {
        if let Some(bell) = self.bells(key).get(key) {
            bell.notify_waiters();
        }
    }

    fn bells(&self, key: &KeyId) -> MutexGuard<'_, Bells> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[shard].lock().expect("nothing panics while it holds this lock")
    }
}

// === impl Place ===

impl Place<'_> {
    /// Resolves at the next ring after this call, also when it is polled only later: listen first, then look.
    pub(super) fn ring(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut bells = self.waiting.bells(self.key);
        // The map and this place hold it: nobody else does, and nobody can join while the shard is locked.
        if Arc::strong_count(&self.bell) == 2 {
            bells.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::{IdempotencyKey, Scope};

    fn key(name: &str) -> KeyId {
        KeyId { scope: Scope::new("s").unwrap(), key: IdempotencyKey::new(name).unwrap() }
    }

    fn bells(waiting: &Waiting) -> usize {
        waiting.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[tokio::test]
    async fn a_ring_before_the_first_poll_is_heard() {
        let (waiting, key, other) = (Waiting::new(), key("k"), key("other"));
        let place = waiting.join(&key);
        let heard = place.ring();
        waiting.ring(&other);
        waiting.ring(&key);
        heard.await;
    }

    #[tokio::test]
    async fn the_last_one_to_leave_takes_the_bell_away() {
        let (waiting, key) = (Waiting::new(), key("k"));
        let first = waiting.join(&key);
        let second = waiting.join(&key);
        drop(first);
        assert_eq!(bells(&waiting), 1);
        drop(second);
        assert_eq!(bells(&waiting), 0);
    }
}
