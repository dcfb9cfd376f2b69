//! One statement carries everything that arrived while the previous one was in flight.

mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use idem_core::State;
use lane::{Lane, Load};

use crate::store::{
    Counts, Cursor, Entry, Filter, KeyId, LiveKeys, ScopePattern, Snapshot, Store, StoreError, Swap, SwapRequest,
};

/// Writes that travel together at most, and their bytes: a statement must end long before anybody loses patience.
const SWAPS: Load = Load { questions: 256, bytes: 4 * 1024 * 1024 };
/// Keys that are read together at most: each may bring a body back.
const LOADS: Load = Load { questions: 64, bytes: usize::MAX };

/// How many statements may be in flight at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flights {
    /// Of those that write.
    pub swap: usize,
    /// Of those that read.
    pub load: usize,
}

/// A front before any store that carries loads and swaps together; the rest passes through.
///
/// A caller that goes away before its statement departs is left out of it; afterwards it changes nothing for the others. An outage
/// is told to everybody aboard. An answer that is broken is asked for again one caller at a time, so that it stays with the one
/// who broke it.
pub struct BatchingStore {
    store: Arc<dyn Store>,
    swaps: Lane<SwapRequest, Swap, StoreError>,
    loads: Lane<KeyId, Snapshot, StoreError>,
}

// === impl Flights ===

impl Flights {
    /// One statement plans while the other commits; more would only make the batches smaller.
    pub const POSTGRES: Flights = Flights { swap: 2, load: 2 };
    /// There is one writer, and readers beside it.
    pub const SQLITE: Flights = Flights { swap: 1, load: 2 };
}

// === impl BatchingStore ===

impl BatchingStore {
    /// Before `store`, with at least one flight of each kind.
    pub fn new(store: Arc<dyn Store>, flights: Flights) -> Self {
        let (swapping, loading) = (store.clone(), store.clone());
        let swaps = Lane::new(flights.swap, SWAPS, bytes, move |writes: Vec<SwapRequest>| {
            let store = swapping.clone();
            record_size("swap", writes.len());
            async move { store.swap(writes).await }.boxed()
        });
        let weightless = |_: &KeyId| 0;
        let loads = Lane::new(flights.load, LOADS, weightless, move |keys: Vec<KeyId>| {
            let store = loading.clone();
            record_size("load", keys.len());
            async move { store.load(&keys).await }.boxed()
        });
        Self { store, swaps, loads }
    }
}

#[async_trait]
impl Store for BatchingStore {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        self.loads.carry(keys.to_vec()).await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        self.swaps.carry(writes).await
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.store.list(filter, after, limit).await
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        self.store.count(scopes).await
    }

    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        self.store.count_live(scopes).await
    }

    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        self.store.hand_out_stale(scopes, limit, hide).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}

fn record_size(operation: &'static str, size: usize) {
    metrics::histogram!("idem_store_batch_size", "operation" => operation).record(size as f64);
}

/// What is large about a write.
fn bytes(write: &SwapRequest) -> usize {
    match &write.put.record.state {
        State::Completed(response) => response.body().len(),
        State::InProgress | State::InDoubt | State::Released => 0,
    }
}
