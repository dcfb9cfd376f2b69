#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;

use database::Clock;
use futures::future::{join_all, poll_immediate};
use idem_core::{
    AttemptId, Command, Fingerprint, IdempotencyKey, LEASE_DEFAULT, OperationId, Put, RETENTION_DEFAULT, Response,
    Scope, TraceContext, Until, Verdict, decide,
};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use uuid::Uuid;

use super::*;
use crate::store::Version;
use crate::store::memory::MemoryStore;

/// A store that opens its door for as many statements as it is told to, and remembers what each carried.
struct Gate {
    memory: MemoryStore,
    door: Semaphore,
    swaps: Mutex<Vec<Vec<String>>>,
    loads: Mutex<Vec<usize>>,
    outage: Mutex<bool>,
}

impl Gate {
    fn new() -> Arc<Self> {
        let memory = MemoryStore::new(Clock::system());
        let (swaps, loads, outage) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { memory, door: Semaphore::new(0), swaps, loads, outage })
    }

    fn batching(self: &Arc<Self>, flights: usize) -> BatchingStore {
        BatchingStore::new(self.clone(), Flights { swap: flights, load: flights })
    }

    fn let_through(&self, statements: usize) {
        self.door.add_permits(statements);
    }

    /// How many writes each statement carried so far.
    fn sizes(&self) -> Vec<usize> {
        self.swaps.lock().unwrap().iter().map(Vec::len).collect()
    }

    /// Lets every flight that can depart depart.
    async fn settle(&self) {
        for _ in 0..100 {
            yield_now().await;
        }
    }
}

#[async_trait]
impl Store for Gate {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        self.loads.lock().unwrap().push(keys.len());
        self.door.acquire().await.unwrap().forget();
        self.memory.load(keys).await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        let names: Vec<String> = writes.iter().map(|write| write.key.key.as_str().to_owned()).collect();
        self.swaps.lock().unwrap().push(names.clone());
        self.door.acquire().await.unwrap().forget();
        assert!(!names.contains(&"panic".to_owned()), "on purpose");
        if *self.outage.lock().unwrap() {
            return Err(StoreError::Unavailable("no route to the store".into()));
        }
        // As Postgres does it: one statement for all, or nothing.
        if names.contains(&"broken".to_owned()) {
            return Err(StoreError::Broken("a byte that no column takes".into()));
        }
        self.memory.swap(writes).await
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

fn key(name: &str) -> KeyId {
    KeyId { scope: Scope::new("s").unwrap(), key: IdempotencyKey::new(name).unwrap() }
}

fn write(name: &str) -> Vec<SwapRequest> {
    let reserve = Command::Reserve {
        fingerprint: Fingerprint::from_slice(&[7; 32]).unwrap(),
        attempt_id: AttemptId(Uuid::new_v4()),
        operation_id: OperationId(Uuid::new_v4()),
        lease: LEASE_DEFAULT,
        retention: RETENTION_DEFAULT,
        trace_context: TraceContext::default(),
    };
    let Verdict::Put(put, _) = decide(None, reserve) else { panic!("a first reservation is written") };
    vec![SwapRequest { key: key(name), seen: Version::Absent, put: *put, audit: None, until: None }]
}

/// A write that carries a body of `size` bytes.
fn large(name: &str, size: usize) -> Vec<SwapRequest> {
    let mut writes = write(name);
    let response = Response::new(200, Vec::new(), vec![0; size].into(), String::new()).unwrap();
    let Put { record, until, .. } = &mut writes[0].put;
    (record.state, *until) = (State::Completed(response), Until::Retention(RETENTION_DEFAULT));
    writes
}

type Pending<'s, T> = Pin<Box<dyn Future<Output = Result<Vec<T>, StoreError>> + Send + 's>>;

/// Asks, without waiting for the answer.
async fn ask<'s, T: 's>(question: impl Future<Output = Result<Vec<T>, StoreError>> + Send + 's) -> Pending<'s, T> {
    let mut pending: Pending<'s, T> = Box::pin(question);
    assert!(poll_immediate(pending.as_mut()).await.is_none(), "the gate is closed");
    pending
}

async fn ask_many<'s>(store: &'s BatchingStore, names: impl Iterator<Item = String>) -> Vec<Pending<'s, Swap>> {
    let mut pending = Vec::new();
    for name in names {
        pending.push(ask(store.swap(write(&name))).await);
    }
    pending
}

fn has_won(answer: &Result<Vec<Swap>, StoreError>) -> bool {
    matches!(answer.as_deref(), Ok([Swap::Won(_)]))
}

#[tokio::test]
async fn a_lone_write_departs_at_once_and_alone() {
    let gate = Gate::new();
    let store = gate.batching(1);
    for (n, name) in ["a", "b", "c"].iter().enumerate() {
        let pending = ask(store.swap(write(name))).await;
        gate.settle().await;
        assert_eq!(gate.sizes(), vec![1; n + 1]);
        gate.let_through(1);
        assert!(has_won(&pending.await));
    }
}

#[tokio::test]
async fn what_arrives_while_a_statement_is_in_flight_travels_together() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let first = ask(store.swap(write("first"))).await;
    gate.settle().await;
    let rest = ask_many(&store, (0..10).map(|n| n.to_string())).await;
    gate.settle().await;
    assert_eq!(gate.sizes(), [1]);
    gate.let_through(2);
    assert!(has_won(&first.await));
    assert!(join_all(rest).await.iter().all(has_won));
    assert_eq!(gate.sizes(), [1, 10]);
}

#[tokio::test]
async fn no_more_statements_are_in_flight_than_allowed() {
    let gate = Gate::new();
    let store = gate.batching(2);
    let mut pending = Vec::new();
    for n in 0..10 {
        pending.push(ask(store.swap(write(&n.to_string()))).await);
        gate.settle().await;
    }
    assert_eq!(gate.sizes(), [1, 1]);
    gate.let_through(1);
    gate.settle().await;
    assert_eq!(gate.sizes(), [1, 1, 8]);
    gate.let_through(2);
    assert!(join_all(pending).await.iter().all(has_won));
}

#[tokio::test]
async fn loads_and_swaps_do_not_wait_for_each_other() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let swap = ask(store.swap(write("k"))).await;
    let wanted = [key("k"), key("other")];
    let load = ask(store.load(&wanted)).await;
    gate.settle().await;
    assert_eq!((gate.sizes(), gate.loads.lock().unwrap().clone()), (vec![1], vec![2]));
    gate.let_through(2);
    assert!(has_won(&swap.await));
    assert_eq!(load.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_caller_that_goes_away_changes_nothing_for_the_others() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let departed = ask(store.swap(write("departed"))).await;
    gate.settle().await;
    let waiting = ask(store.swap(write("waiting"))).await;
    let staying = ask(store.swap(write("staying"))).await;
    drop((departed, waiting));
    gate.let_through(2);
    assert!(has_won(&staying.await));
    // What had departed is carried out; what had not starts no work.
    assert_eq!(*gate.swaps.lock().unwrap(), [["departed"], ["staying"]]);
    assert!(gate.memory.load(&[key("departed")]).await.unwrap()[0].record.is_some());
}

#[tokio::test]
async fn two_writes_to_one_key_in_a_batch_have_one_winner() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let first = ask(store.swap(write("first"))).await;
    gate.settle().await;
    let same = ask_many(&store, (0..5).map(|_| "same".to_owned())).await;
    gate.let_through(2);
    assert!(has_won(&first.await));
    let won: Vec<bool> = join_all(same).await.iter().map(has_won).collect();
    assert_eq!(won, [true, false, false, false, false]);
    assert_eq!(gate.sizes(), [1, 5]);
}

#[tokio::test]
async fn an_outage_is_told_to_everybody_with_its_cause() {
    let gate = Gate::new();
    let store = gate.batching(1);
    *gate.outage.lock().unwrap() = true;
    let first = ask(store.swap(write("first"))).await;
    gate.settle().await;
    let rest = ask_many(&store, (0..5).map(|n| n.to_string())).await;
    gate.let_through(2);
    for answer in join_all(std::iter::once(first).chain(rest)).await {
        let Err(StoreError::Unavailable(cause)) = answer else { panic!("{answer:?}") };
        assert_eq!(cause.to_string(), "no route to the store");
    }
    assert_eq!(gate.sizes(), [1, 5]);
}

#[tokio::test]
async fn a_broken_write_stays_with_its_writer() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let first = ask(store.swap(write("first"))).await;
    gate.settle().await;
    let rest = ask_many(&store, ["a", "broken", "b"].into_iter().map(str::to_owned)).await;
    gate.let_through(5);
    assert!(has_won(&first.await));
    let answers = join_all(rest).await;
    assert!(has_won(&answers[0]) && has_won(&answers[2]));
    assert!(matches!(answers[1], Err(StoreError::Broken(_))));
    assert_eq!(gate.sizes(), [1, 3, 1, 1, 1]);
}

#[tokio::test]
async fn a_panic_in_the_store_stays_with_its_caller_and_the_rest_goes_on() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let first = ask(store.swap(write("panic"))).await;
    gate.settle().await;
    let rest = ask(store.swap(write("rest"))).await;
    gate.let_through(2);
    assert!(matches!(first.await, Err(StoreError::Broken(_))));
    assert!(has_won(&rest.await));
}

#[tokio::test]
async fn a_batch_is_bounded_in_number_and_in_bytes() {
    let gate = Gate::new();
    let store = gate.batching(1);
    let first = ask(store.swap(write("first"))).await;
    gate.settle().await;
    let small = ask_many(&store, (0..600).map(|n| n.to_string())).await;
    let mut heavy = Vec::new();
    for n in 0..6 {
        heavy.push(ask(store.swap(large(&format!("heavy {n}"), 1024 * 1024))).await);
    }
    gate.let_through(10);
    first.await.unwrap();
    assert!(join_all(small.into_iter().chain(heavy)).await.iter().all(Result::is_ok));
    let sizes = gate.sizes();
    assert_eq!(sizes.iter().sum::<usize>(), 607);
    assert_eq!(sizes, [1, 256, 256, 92, 2]);

    // More than that from one caller still travels, alone.
    gate.let_through(1);
    let many: Vec<SwapRequest> = (0..300).flat_map(|n| write(&format!("one caller {n}"))).collect();
    assert_eq!(store.swap(many).await.unwrap().len(), 300);
    assert_eq!(gate.sizes().last(), Some(&300));
}
