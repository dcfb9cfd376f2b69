//! The store in a SQLite file: everything that writes goes through the one writer, and shares its commit with whatever waits there.

mod audit;
mod list;
mod rows;
mod swap;
mod sweep;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use database::{Database, DatabaseError, Sqlite};
use idem_core::IdempotencyKey;
use rusqlite::Connection;

use super::{
    AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, Open, QUICK, SLOW, ScopePattern, Snapshot, Store,
    StoreError, Swap, SwapRequest, within,
};
use crate::sealing::Sealing;

/// The store in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    sqlite: Sqlite,
    sealing: Sealing,
}

// === impl SqliteStore ===

impl SqliteStore {
    /// Over an open file with the schema of this service.
    pub fn new(sqlite: Sqlite, sealing: Sealing) -> Self {
        Self { sqlite, sealing }
    }

    /// Runs `job` on the writer with the time at which it runs there.
    async fn write<T: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce(&Connection, SystemTime) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let sqlite = self.sqlite.clone();
        let work = self.sqlite.write(move |connection| job(connection, rows::instant(sqlite.now())));
        within(limit, work).await
    }

    /// Runs `job` on a reader with the time at which it runs there.
    async fn read<T: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce(&Connection, SystemTime) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let sqlite = self.sqlite.clone();
        let work = self.sqlite.read(move |connection| job(connection, rows::instant(sqlite.now())));
        within(limit, work).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        let (keys, sealing) = (keys.to_vec(), self.sealing.clone());
        self.read(QUICK, move |connection, now| {
            keys.iter().map(|key| rows::load(connection, key, &sealing, now)).collect()
        })
        .await
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        let sealing = self.sealing.clone();
        self.write(QUICK, move |connection, now| {
            writes.iter().map(|write| swap::swap(connection, write, &sealing, now)).collect()
        })
        .await
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let (filter, after, sealing) = (filter.clone(), after.cloned(), self.sealing.clone());
        self.read(SLOW, move |connection, now| list::list(connection, &filter, after.as_ref(), limit, &sealing, now))
            .await
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        let scopes = scopes.to_vec();
        self.read(SLOW, move |connection, now| list::count(connection, &scopes, now)).await
    }

    async fn count_open(&self) -> Result<Open, StoreError> {
        self.read(QUICK, list::count_open).await
    }

    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let (scopes, key) = (scopes.to_vec(), key.cloned());
        self.read(SLOW, move |connection, _| audit::page(connection, &scopes, key.as_ref(), before, limit)).await
    }

    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        let scopes = scopes.to_vec();
        self.read(SLOW, move |connection, _| list::count_live(connection, &scopes)).await
    }

    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        let scopes = scopes.to_vec();
        // What is handed out has no answer yet, so there is nothing to open.
        self.write(SLOW, move |connection, now| sweep::hand_out_stale(connection, &scopes, limit, hide, now)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.write(SLOW, move |connection, now| sweep::purge(connection, limit, now)).await
    }

    fn system(&self) -> &'static str {
        "sqlite"
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let database = Database::Sqlite(self.sqlite.clone());
        within(QUICK, async { Ok(database.ping().await?) }).await
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        DatabaseError::from(error).into()
    }
}
