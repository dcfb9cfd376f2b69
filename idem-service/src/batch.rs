//! One statement carries what arrived while others were in flight.

mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chassis::telemetry::{Observation, observe_with};
use database::PoolStatus;
use futures::FutureExt;
use idem_core::{IdempotencyKey, State};
use lane::{Lane, Load};
use tracing::{Instrument, Span, info_span};

use crate::store::{
    AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, Open, ScopePattern, Snapshot, Store, StoreError, Swap,
    SwapRequest,
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
    swaps: Lane<Asked<SwapRequest>, Swap, StoreError>,
    loads: Lane<Asked<KeyId>, Snapshot, StoreError>,
    _depth: Observation,
}

/// A question, and the span in which it is asked.
#[derive(Clone)]
struct Asked<Q> {
    question: Q,
    span: Span,
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
        let system = store.system();
        let (swapping, loading) = (store.clone(), store.clone());
        let swaps = Lane::new(flights.swap, SWAPS, bytes, move |asked: Vec<Asked<SwapRequest>>| {
            let (store, span) = (swapping.clone(), statement("swap", system, &asked));
            let writes = asked.into_iter().map(|it| it.question).collect();
            async move { store.swap(writes).await }.instrument(span).boxed()
        });
        let weightless = |_: &Asked<KeyId>| 0;
        let loads = Lane::new(flights.load, LOADS, weightless, move |asked: Vec<Asked<KeyId>>| {
            let (store, span) = (loading.clone(), statement("load", system, &asked));
            let keys: Vec<KeyId> = asked.into_iter().map(|it| it.question).collect();
            async move { store.load(&keys).await }.instrument(span).boxed()
        });
        let (swapping, loading) = (swaps.clone(), loads.clone());
        let depth = observe_with(Duration::ZERO, move || {
            let depths = [("swap", swapping.waiting()), ("load", loading.waiting())];
            for (operation, waiting) in depths {
                metrics::gauge!("idem_store_queue", "operation" => operation).set(waiting as f64);
            }
            std::future::ready(())
        });
        Self { store, swaps, loads, _depth: depth }
    }
}

#[async_trait]
impl Store for BatchingStore {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        self.loads.carry(keys.iter().cloned().map(asked).collect()).await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        self.swaps.carry(writes.into_iter().map(asked).collect()).await
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.store.list(filter, after, limit).await
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        self.store.count(scopes).await
    }

    async fn count_open(&self) -> Result<Open, StoreError> {
        self.store.count_open().await
    }

    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.store.audits(scopes, key, before, limit).await
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

    fn system(&self) -> &'static str {
        self.store.system()
    }

    fn pool(&self) -> Option<PoolStatus> {
        self.store.pool()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}

fn asked<Q>(question: Q) -> Asked<Q> {
    Asked { question, span: Span::current() }
}

/// The span of one statement for all that ask, in the trace of one of them and linked with the others. Counts how many they are.
fn statement<Q>(operation: &'static str, system: &'static str, asked: &[Asked<Q>]) -> Span {
    metrics::histogram!("idem_store_batch_size", "operation" => operation).record(asked.len() as f64);
    let aboard = || asked.iter().map(|it| &it.span);
    let host = chassis::trace::host_of(aboard());
    let span = info_span!(
        parent: host.clone(),
        "store statement",
        otel.name = format_args!("{operation} idem_keys"),
        otel.kind = "client",
        db.system.name = system,
        db.operation.name = operation,
        db.collection.name = "idem_keys",
        db.operation.batch.size = asked.len() as i64,
    );
    chassis::trace::connect(&span, aboard(), host.as_ref());
    span
}

/// What is large about a write.
fn bytes(asked: &Asked<SwapRequest>) -> usize {
    match &asked.question.put.record.state {
        State::Completed(response) => response.body().len(),
        State::InProgress | State::InDoubt | State::Released => 0,
    }
}
