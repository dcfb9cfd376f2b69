//! A store on the bench: its clock moved by hand, its tables open to the test.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use database::testing::{Scratch, postgres_url, sqlite_url};
use database::{Clock, Database, Hand, Options, StoreUrl};
use idem_core::{
    AttemptId, Command, Fingerprint, IdempotencyKey, LeaseDuration, OperationId, Put, Record, Response,
    RetentionPeriod, Scope, TraceContext, Verdict, decide,
};
use idem_service::Sealing;
use idem_service::batch::{BatchingStore, Flights};
use idem_service::store::AuditRow;
use idem_service::store::memory::MemoryStore;
use idem_service::store::postgres::PostgresStore;
use idem_service::store::sqlite::SqliteStore;
use idem_service::store::{KeyId, SCHEMA, ScopePattern, Snapshot, Store, Swap, SwapRequest, Version};
use tokio_postgres::NoTls;
use uuid::Uuid;

pub const LEASE: Duration = Duration::from_secs(60);
pub const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// A store and what a test needs around it.
pub struct Bench {
    pub store: Arc<dyn Store>,
    pub hand: Hand,
    place: Place,
}

enum Place {
    Memory,
    Scratch(Scratch),
}

// === impl Bench ===

impl Bench {
    pub fn memory() -> Self {
        let (clock, hand) = Clock::by_hand();
        let memory = Arc::new(MemoryStore::new(clock));
        Self { store: memory, hand, place: Place::Memory }
    }

    pub async fn sqlite() -> Self {
        Self::at(sqlite_url(), Sealing::off()).await
    }

    /// With stored answers encrypted.
    pub async fn sqlite_sealed() -> Self {
        Self::at(sqlite_url(), sealing(&[("k1", 1)])).await
    }

    pub async fn postgres() -> Self {
        Self::at(postgres_url("store_conformance").await, Sealing::off()).await
    }

    /// With stored answers encrypted.
    pub async fn postgres_sealed() -> Self {
        Self::at(postgres_url("store_conformance").await, sealing(&[("k1", 1)])).await
    }

    pub async fn at(scratch: Scratch, sealing: Sealing) -> Self {
        let (clock, hand) = Clock::by_hand();
        Self { store: open(scratch.url(), clock, sealing).await, hand, place: Place::Scratch(scratch) }
    }

    /// The same store behind the batching front.
    pub fn batching(self) -> Self {
        let flights = match self.url() {
            Some(StoreUrl::Postgres(_)) => Flights::POSTGRES,
            Some(StoreUrl::Sqlite(_)) | None => Flights::SQLITE,
        };
        Self { store: Arc::new(BatchingStore::new(self.store, flights)), ..self }
    }

    pub fn url(&self) -> Option<&StoreUrl> {
        match &self.place {
            Place::Memory => None,
            Place::Scratch(scratch) => Some(scratch.url()),
        }
    }

    /// Closes the store and keeps its place.
    pub fn close(self) -> Scratch {
        match self.place {
            Place::Scratch(scratch) => scratch,
            Place::Memory => panic!("memory has no place to keep"),
        }
    }

    /// Whether time stands still unless it is moved.
    pub fn is_frozen(&self) -> bool {
        self.url().is_none()
    }

    pub async fn load(&self, key: &KeyId) -> Snapshot {
        let mut snapshots = self.store.load(std::slice::from_ref(key)).await.unwrap();
        assert_eq!(snapshots.len(), 1);
        snapshots.remove(0)
    }

    pub async fn swap(&self, key: &KeyId, seen: Version, put: Put) -> Swap {
        let write = SwapRequest { key: key.clone(), seen, put, audit: None, until: None };
        let mut answers = self.store.swap(vec![write]).await.unwrap();
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// A swap that must win.
    pub async fn win(&self, key: &KeyId, seen: Version, put: Put) -> Snapshot {
        match self.swap(key, seen, put).await {
            Swap::Won(snapshot) => snapshot,
            Swap::Lost(truth) => panic!("lost against {truth:?}"),
        }
    }

    /// A swap that must lose; the truth.
    pub async fn lose(&self, key: &KeyId, seen: Version, put: Put) -> Snapshot {
        match self.swap(key, seen, put).await {
            Swap::Won(snapshot) => panic!("won {snapshot:?}"),
            Swap::Lost(truth) => truth,
        }
    }

    /// Carries out a command that must change the key.
    pub async fn step(&self, key: &KeyId, command: impl FnOnce(&Record) -> Command) -> Snapshot {
        let seen = self.load(key).await;
        let record = seen.record.expect("the key is there");
        let put = put(decide(Some(&record), command(&record)));
        self.win(key, seen.version, put).await
    }

    /// Reserves an absent key for operation and attempt `n`.
    pub async fn reserve(&self, key: &KeyId, n: u128) -> Snapshot {
        self.win(key, Version::Absent, first(n)).await
    }

    /// The audit table, oldest first.
    pub async fn audits(&self) -> Vec<AuditRow> {
        let mut lines = self.store.audits(&every_scope(), None, None, 500).await.unwrap();
        lines.reverse();
        lines
    }

    /// A connection of the test's own, past any pooler.
    pub async fn postgres_client(&self) -> tokio_postgres::Client {
        let Place::Scratch(scratch) = &self.place else { panic!("not on Postgres") };
        let StoreUrl::Postgres(config) = scratch.direct() else { panic!("not on Postgres") };
        let (client, connection) = config.connect(NoTls).await.unwrap();
        drop(chassis::tasks::Tasks::new().spawn("client", connection));
        client
    }
}

/// A store at `url` without a front.
pub async fn open(url: &StoreUrl, clock: Clock, sealing: Sealing) -> Arc<dyn Store> {
    let options = Options { plan_by_index: true, ..Options::default() };
    match Database::open(url, &SCHEMA, clock, options).await.unwrap() {
        Database::Sqlite(sqlite) => Arc::new(SqliteStore::new(sqlite, sealing)),
        Database::Postgres(postgres) => Arc::new(PostgresStore::new(postgres, sealing)),
    }
}

/// Encryption with these keys, each of one byte, 32 times; the first seals.
pub fn sealing(keys: &[(&str, u8)]) -> Sealing {
    let encode = |byte: &u8| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [*byte; 32]);
    let entries = keys.iter().map(|(id, byte)| format!(r#"{{"id":"{id}","key":"{}"}}"#, encode(byte)));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("[{}]", entries.collect::<Vec<_>>().join(","))).unwrap();
    Sealing::load(file.path()).unwrap()
}

// === keys, commands and puts ===

pub fn key(name: &str) -> KeyId {
    key_in("rest/tenant", name)
}

pub fn key_in(scope: &str, name: &str) -> KeyId {
    KeyId { scope: Scope::new(scope).unwrap(), key: IdempotencyKey::new(name).unwrap() }
}

pub fn every_scope() -> Vec<ScopePattern> {
    vec![ScopePattern::Prefix(String::new())]
}

pub fn lease(duration: Duration) -> LeaseDuration {
    LeaseDuration::new(duration).unwrap()
}

pub fn retention(duration: Duration) -> RetentionPeriod {
    RetentionPeriod::stored(duration)
}

pub fn operation(n: u128) -> OperationId {
    OperationId(Uuid::from_u128(n))
}

pub fn attempt(n: u128) -> AttemptId {
    AttemptId(Uuid::from_u128(n))
}

/// A Reserve of operation and attempt `n`.
pub fn reserving(n: u128) -> Command {
    reserving_for(n, LEASE, RETENTION)
}

pub fn reserving_for(n: u128, held: Duration, kept: Duration) -> Command {
    Command::Reserve {
        fingerprint: Fingerprint::from_slice(&[7; 32]).unwrap(),
        attempt_id: attempt(n),
        operation_id: operation(n),
        lease: lease(held),
        retention: retention(kept),
        trace_context: TraceContext::new(format!("00-{n:032x}-{n:016x}-01")).unwrap(),
    }
}

pub fn completing(record: &Record, response: Response) -> Command {
    Command::Complete { operation_id: record.operation_id, token: record.token, response }
}

pub fn releasing(record: &Record) -> Command {
    Command::Release { operation_id: record.operation_id, token: record.token }
}

pub fn abandoning(record: &Record) -> Command {
    Command::Abandon { operation_id: record.operation_id, token: record.token }
}

pub fn renewing(record: &Record) -> Command {
    Command::Renew { operation_id: record.operation_id, token: record.token, lease: lease(LEASE) }
}

pub fn reclaiming(record: &Record, n: u128) -> Command {
    Command::Reclaim {
        operation_id: record.operation_id,
        token: record.token,
        attempt_id: attempt(n),
        lease: lease(LEASE),
    }
}

/// What a verdict wants written.
pub fn put(verdict: Verdict) -> Put {
    match verdict {
        Verdict::Put(put, _) => *put,
        Verdict::Keep(answer) => panic!("nothing to write: {answer:?}"),
    }
}

/// The first reservation of a key.
pub fn first(n: u128) -> Put {
    put(decide(None, reserving(n)))
}

/// What a command makes of a snapshot.
pub fn next(seen: &Snapshot, command: impl FnOnce(&Record) -> Command) -> Put {
    let record = seen.record.as_ref().expect("the key is there");
    put(decide(Some(record), command(record)))
}

/// A plain answer.
pub fn answer(body: impl Into<Bytes>) -> Response {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Response::new(201, headers, body.into(), "order-1".into()).unwrap()
}

/// The same, whatever the time at which it was judged.
pub fn assert_same(one: &Snapshot, other: &Snapshot) {
    assert_eq!(one.record, other.record);
    assert_eq!(one.version, other.version);
    assert_eq!(one.times, other.times);
}

pub fn number(snapshot: &Snapshot) -> i64 {
    match snapshot.version {
        Version::Absent => 0,
        Version::At { number, .. } => number,
    }
}

/// Changes that a foreign hand might make, on both engines.
pub const MISTAKES: [&str; 8] = [
    "UPDATE idem_keys SET lease_until = NULL WHERE key = 'held'",
    "UPDATE idem_keys SET expires_at = updated_at WHERE key = 'held'",
    "UPDATE idem_keys SET state = 'in_doubt' WHERE key = 'held'",
    "UPDATE idem_keys SET state = 'running' WHERE key = 'held'",
    "UPDATE idem_keys SET granted_by = 'nobody' WHERE key = 'held'",
    "UPDATE idem_keys SET expires_at = NULL WHERE key = 'completed'",
    "UPDATE idem_keys SET response_body = NULL WHERE key = 'completed'",
    "UPDATE idem_keys SET lease_until = updated_at WHERE key = 'completed'",
];
