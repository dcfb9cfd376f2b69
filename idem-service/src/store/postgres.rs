//! The store in Postgres: every operation is one statement that commits by itself, and a lost swap a second one that reads the truth.

mod list;
mod rows;
mod swap;
mod sweep;
mod want;

use std::time::Duration;

use async_trait::async_trait;
use database::{Database, DatabaseError, PoolStatus, Postgres};
use idem_core::IdempotencyKey;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{
    AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, Open, QUICK, SLOW, ScopePattern, Snapshot, Store,
    StoreError, Swap, SwapRequest, within,
};
use crate::sealing::Sealing;

/// A deadlock, a serialisation failure or a lost connection is met again at once; a server that is down stays so.
const ATTEMPTS: u32 = 4;

/// A parameter and the type that the statement takes it as.
type Param<'p> = (&'p (dyn ToSql + Sync), Type);

/// The store in Postgres.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    postgres: Postgres,
    sealing: Sealing,
}

/// How often a write was sent in vain.
#[derive(Default)]
struct Attempts {
    failed: u32,
    is_unsure: bool,
}

/// The rows of a write.
struct Written {
    rows: Vec<Row>,
    /// The connection was lost during an earlier attempt, which may have been committed all the same.
    is_unsure: bool,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// Over an open database with the schema of this service.
    pub fn new(postgres: Postgres, sealing: Sealing) -> Self {
        Self { postgres, sealing }
    }

    /// What own SQL adds to the server's clock.
    fn offset(&self) -> i64 {
        self.postgres.clock().offset_micros()
    }

    async fn read(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let mut attempt = 1;
        loop {
            let connection = self.postgres.client().await?;
            match connection.read(sql, params).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => attempt += 1,
                settled => return Ok(settled?),
            }
        }
    }

    /// Runs a statement that may be run twice: every write here carries its guard.
    async fn write(&self, sql: &str, params: &[Param<'_>]) -> Result<Written, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let connection = self.postgres.client().await?;
            if let Some(written) = attempts.judge(connection.write(sql, params).await)? {
                return Ok(written);
            }
        }
    }
}

// === impl Attempts ===

impl Attempts {
    /// What a write has come to; nothing when it is to be sent again.
    fn judge(&mut self, sent: Result<Vec<Row>, DatabaseError>) -> Result<Option<Written>, StoreError> {
        match sent {
            Ok(rows) => Ok(Some(Written { rows, is_unsure: self.is_unsure })),
            // A taken key is no bug: no statement here insists on a row of its own, so another round meets the one that stands.
            Err(error) if (error.is_transient() || error.is_taken()) && self.failed + 1 < ATTEMPTS => {
                self.failed += 1;
                self.is_unsure |= matches!(error, DatabaseError::CommitUnknown);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        within(QUICK, self.load_each(keys)).await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        within(QUICK, self.swap_each(&writes)).await
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        within(SLOW, self.list_page(filter, after, limit)).await
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        within(SLOW, self.count_states(scopes)).await
    }

    async fn count_open(&self) -> Result<Open, StoreError> {
        within(QUICK, self.count_states_open()).await
    }

    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        within(SLOW, self.audit_page(scopes, key, before, limit)).await
    }

    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        within(SLOW, self.count_live_keys(scopes)).await
    }

    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        within(SLOW, self.hand_out(scopes, limit, hide)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        within(SLOW, self.purge_over(limit)).await
    }

    fn system(&self) -> &'static str {
        "postgresql"
    }

    fn pool(&self) -> Option<PoolStatus> {
        Some(self.postgres.pool_status())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let database = Database::Postgres(self.postgres.clone());
        within(QUICK, async { Ok(database.ping().await?) }).await
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        DatabaseError::from(error).into()
    }
}
