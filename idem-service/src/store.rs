//! The store: a durable compare-and-swap register per key, ordered by deadline. It owns the only clock.
//!
//! A store knows no verb of the domain: what a command does to a record is decided by `idem_core::decide`, and the store writes
//! the outcome if nobody was faster. Every write travels in a batch, because one statement for many keys is what makes a store
//! fast; a batch of one is the ordinary case.

pub mod memory;
mod open;
pub mod postgres;
pub mod sqlite;
mod stored;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use database::{DatabaseError, PoolStatus};
use idem_core::{FencingToken, IdempotencyKey, OperationId, Put, Record, Scope, StateName};
use tokio::time::Instant;

pub use self::open::{SCHEMA, migrate, open};

/// Which key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyId {
    /// Who owns it.
    pub scope: Scope,
    /// Its name.
    pub key: IdempotencyKey,
}

/// Which writing of a key; compared whole, since a purged key starts again at number 1 under another operation id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// No record.
    Absent,
    /// The `number`th writing of the record of this operation.
    At {
        /// The record's operation id at that writing.
        operation_id: OperationId,
        /// Raised by every swap.
        number: i64,
    },
}

/// What is stored under a key, judged by the store's clock at `now`.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The record, its deadline judged; none when the key is absent.
    pub record: Option<Record>,
    /// To swap against.
    pub version: Version,
    /// When things happened; meaningless when the key is absent.
    pub times: Times,
    /// The store's clock when this was judged.
    pub now: SystemTime,
}

/// When things happened to a key, by the store's clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// First reservation of this generation.
    pub created_at: SystemTime,
    /// Last swap.
    pub updated_at: SystemTime,
    /// End of the lease; set while in progress.
    pub lease_until: Option<SystemTime>,
    /// Set when completed.
    pub completed_at: Option<SystemTime>,
    /// End of the retention; set when completed or released.
    pub expires_at: Option<SystemTime>,
}

/// One write: put `put` under `key` if it is still at `seen`.
///
/// A retention is judged in the statement that writes: a put that begins a new generation (`is_new`) wins only where there is
/// no record or one whose retention is over by then, and any other put only where the retention is not over. Whoever judged
/// a moment too early or too late loses, and hears the truth.
#[derive(Clone, Debug)]
pub struct SwapRequest {
    /// Which key.
    pub key: KeyId,
    /// What the writer saw.
    pub seen: Version,
    /// What it wants.
    pub put: Put,
    /// Written to the audit table in the same transaction, if the swap wins.
    pub audit: Option<Audit>,
    /// When its caller gives up. A store that has to wait for the row longer than that writes nothing: nobody would ever hear of it.
    pub until: Option<Instant>,
}

/// Why an operator settled a key by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    /// What was done: complete, release or abandon.
    pub action: &'static str,
    /// Why, in the operator's words.
    pub reason: String,
    /// Who, in the operator's words.
    pub operator: String,
    /// The authenticated service that called.
    pub service: String,
}

/// What became of a write.
#[derive(Clone, PartialEq, Debug)]
pub enum Swap {
    /// Durable. The snapshot is what stands there now.
    Won(Snapshot),
    /// Somebody was faster. The snapshot is the truth.
    Lost(Snapshot),
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Scopes that may be seen; empty means none.
    pub scopes: Vec<ScopePattern>,
    /// States wanted; empty means all.
    pub states: Vec<StateName>,
    /// Only records that have been as they are for at least this long: open since their first reservation, or finished since.
    pub older_than: Duration,
    /// Only the record of this operation.
    pub operation_id: Option<OperationId>,
}

/// A scope, or every scope with a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScopePattern {
    /// This one.
    Exact(String),
    /// All that start with this; the empty prefix is every scope.
    Prefix(String),
}

impl ScopePattern {
    /// Whether `scope` is one of those.
    pub fn matches(&self, scope: &Scope) -> bool {
        match self {
            ScopePattern::Exact(exact) => scope.as_str() == exact,
            ScopePattern::Prefix(prefix) => scope.as_str().starts_with(prefix),
        }
    }
}

/// Where a page starts: after this `(since, scope, key)`, in that order.
#[derive(Clone, PartialEq, Debug)]
pub struct Cursor {
    /// [`Snapshot::since`] of the last record of the page before.
    pub since: SystemTime,
    /// Which record that was.
    pub key: KeyId,
}

/// A listed record. Its response, if any, has an empty body: listings never read bodies.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Which key.
    pub key: KeyId,
    /// What stands there.
    pub snapshot: Snapshot,
}

/// How many records are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Held, lease alive or over.
    pub in_progress: u64,
    /// Of those, lease over.
    pub lease_over: u64,
    /// In doubt.
    pub in_doubt: u64,
    /// Completed, retention running.
    pub completed: u64,
    /// Released, retention running.
    pub released: u64,
    /// Completed or released, retention over.
    pub expired: u64,
    /// First reservation of the in-doubt key that has been open longest.
    pub oldest_in_doubt_at: Option<SystemTime>,
}

/// The keys that nobody has finished, over all scopes, and how long the oldest of each kind has been open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// Held by somebody who is presumed alive.
    pub held: u64,
    /// Held, lease over.
    pub lease_over: u64,
    /// In doubt.
    pub in_doubt: u64,
    /// Since the first reservation of the oldest whose lease is over.
    pub oldest_lease_over: Option<Duration>,
    /// Since the first reservation of the oldest in doubt.
    pub oldest_in_doubt: Option<Duration>,
}

/// A line of the audit table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRow {
    /// Raised with each line.
    pub id: i64,
    /// Which key.
    pub key: KeyId,
    /// Of the record that was written.
    pub operation_id: OperationId,
    /// None when there was no record before.
    pub token_before: Option<FencingToken>,
    /// Of the record that was written.
    pub token_after: FencingToken,
    /// As asked.
    pub action: String,
    /// Why, in the operator's words.
    pub reason: String,
    /// Who, in the operator's words.
    pub operator: String,
    /// The authenticated service that called.
    pub service: String,
    /// When it was written.
    pub at: SystemTime,
}

impl Snapshot {
    /// Since when the key is open, or finished. A holder that comes and goes makes an open key no younger.
    pub fn since(&self) -> SystemTime {
        match self.record.as_ref().map(|record| record.state.name()) {
            Some(StateName::InProgress | StateName::InDoubt) => self.times.created_at,
            Some(StateName::Completed | StateName::Released) | None => self.times.updated_at,
        }
    }
}

/// How many records of a scope are in progress or in doubt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveKeys {
    /// Whose.
    pub scope: Scope,
    /// How many.
    pub keys: u64,
}

/// How many scopes are counted in one answer: it must fit into a message.
pub const LIVE_SCOPES_MAX: u32 = 10_000;

/// Why a store did not answer. Expected outcomes are never errors.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or did not answer in time. Whether a write was committed is unknown; repeating it is safe.
    #[error("the store cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answered something that this program does not understand: a defect, or a foreign hand in the tables.
    #[error("the store answered something unexpected")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// What a fault point makes of a call: it was not carried out, or its answer is lost.
    pub(crate) fn at_fault_point() -> Self {
        Self::Unavailable("the call is lost at a fault point".into())
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        if error.is_transient() { Self::Unavailable(Box::new(error)) } else { Self::Broken(Box::new(error)) }
    }
}

/// A durable compare-and-swap register per key.
///
/// Deadlocks, serialisation failures, a row that vanishes between conflict and read, and dead connections are handled inside with
/// bounded retries; none is shown to the caller.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What is stored under each key now, in the order asked.
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError>;

    /// Carries out each write if its key is still at `seen`; otherwise says what is there instead. Answers in the order asked,
    /// durable before it returns.
    ///
    /// The writes are independent of each other, also in whether they are carried out when the answer is an error. Of two writes
    /// to one key that start from the same version the first wins if any does, and the second hears what the first has left.
    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError>;

    /// A page of records by how long they have been as they are, longest first; records whose retention is over are listed until
    /// they are purged.
    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError>;

    /// Counts records by state. Looks at every record.
    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError>;

    /// Counts the records that are open. Looks at those only, so it is cheap however many there are.
    async fn count_open(&self) -> Result<Open, StoreError>;

    /// Lines of the audit table, latest first: of one key if it is given, older than `before` if that is given.
    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError>;

    /// Counts the records of each scope that are in progress or in doubt, whatever their lease says; of the [`LIVE_SCOPES_MAX`]
    /// scopes with the most, most first.
    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError>;

    /// At most `limit` records in progress whose lease is over, or in doubt, longest waiting first: by the end of the lease, or
    /// by the last change of a record in doubt. Each is then hidden from later calls for `hide`, whatever becomes of it
    /// meanwhile. Changes no record's version.
    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError>;

    /// Deletes at most `limit` records whose retention is over, and says how many.
    async fn purge(&self, limit: u32) -> Result<u64, StoreError>;

    /// The name of the engine, as the semantic conventions of OpenTelemetry have it.
    fn system(&self) -> &'static str {
        "other_sql"
    }

    /// What its connections are at; none when it has no pool of them.
    fn pool(&self) -> Option<PoolStatus> {
        None
    }

    /// Answers when the store does.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// What a caller of the service waits for: it is told of an outage before it has lost patience.
pub(crate) const QUICK: Duration = Duration::from_millis(1200);
/// What operators and sweepers wait for; Postgres ends a single statement a little sooner.
pub(crate) const SLOW: Duration = Duration::from_secs(6);

/// Waits for `work` no longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!("the store has not answered within {limit:?}").into())),
    }
}
