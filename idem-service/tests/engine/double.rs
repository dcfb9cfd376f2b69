//! A store that counts what it is asked, and fails when it is told to.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use database::{Clock, Hand};
use idem_core::IdempotencyKey;
use idem_service::store::memory::MemoryStore;
use idem_service::store::{
    AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, Open, ScopePattern, Snapshot, Store, StoreError, Swap,
    SwapRequest,
};

/// What happens to the next swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is carried out, and the answer is lost.
    ReplyLost,
    /// It is not carried out.
    Refused,
    /// Somebody else is always faster.
    AlwaysLost,
    /// It never answers.
    Hangs,
}

/// A [`MemoryStore`] under observation.
pub struct Double {
    pub memory: MemoryStore,
    loads: AtomicUsize,
    swaps: AtomicUsize,
    /// The next faults of swaps, last first; a lasting one stays.
    faults: Mutex<Vec<Fault>>,
}

impl Double {
    pub fn new() -> (Arc<Self>, Clock, Hand) {
        let (clock, hand) = Clock::by_hand();
        let memory = MemoryStore::new(clock.clone());
        let double = Self { memory, loads: AtomicUsize::new(0), swaps: AtomicUsize::new(0), faults: Mutex::default() };
        (Arc::new(double), clock, hand)
    }

    /// Loads and swaps since the last time that this was asked.
    pub fn take_calls(&self) -> (usize, usize) {
        (self.loads.swap(0, Ordering::SeqCst), self.swaps.swap(0, Ordering::SeqCst))
    }

    /// The faults of the swaps to come, in order.
    pub fn fail(&self, faults: &[Fault]) {
        *self.faults.lock().unwrap() = faults.iter().rev().copied().collect();
    }

    fn next_fault(&self) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        match faults.last() {
            Some(lasting @ (Fault::AlwaysLost | Fault::Hangs)) => Some(*lasting),
            Some(_) => faults.pop(),
            None => None,
        }
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("told to fail".into())
}

#[async_trait]
impl Store for Double {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.memory.load(keys).await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        self.swaps.fetch_add(1, Ordering::SeqCst);
        match self.next_fault() {
            None => self.memory.swap(writes).await,
            Some(Fault::Refused) => Err(unavailable()),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::ReplyLost) => {
                self.memory.swap(writes).await?;
                Err(unavailable())
            }
            Some(Fault::AlwaysLost) => {
                let keys: Vec<_> = writes.into_iter().map(|write| write.key).collect();
                Ok(self.memory.load(&keys).await?.into_iter().map(Swap::Lost).collect())
            }
        }
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.memory.list(filter, after, limit).await
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        self.memory.count(scopes).await
    }

    async fn count_open(&self) -> Result<Open, StoreError> {
        self.memory.count_open().await
    }

    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.memory.audits(scopes, key, before, limit).await
    }

    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        self.memory.count_live(scopes).await
    }

    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        self.memory.hand_out_stale(scopes, limit, hide).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.memory.purge(limit).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.memory.ping().await
    }
}
