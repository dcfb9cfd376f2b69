//! Opening a store by its address.

use std::sync::Arc;

use database::{Clock, Database, Migrated, Migration, OpenError, Options, Schema, StoreUrl};

use super::Store;
use super::postgres::PostgresStore;
use super::sqlite::SqliteStore;
use crate::batch::{BatchingStore, Flights};
use crate::sealing::Sealing;

/// What this service keeps in its store.
pub const SCHEMA: Schema = Schema {
    name: "idem-service",
    migrations: &[Migration {
        number: 1,
        name: "keys and audit",
        sqlite: include_str!("../../migrations/sqlite/0001_keys.sql"),
        postgres: include_str!("../../migrations/postgres/0001_keys.sql"),
    }],
};

/// Opens the store at `url`, behind a front that batches; what it keeps of answers is sealed as `sealing` says. An empty one gets its schema; an older one is refused with the command
/// that migrates it.
pub async fn open(
    url: &StoreUrl,
    clock: Clock,
    options: Options,
    sealing: Sealing,
) -> Result<Arc<dyn Store>, OpenError> {
    // Every statement on the way of a request finds its rows by key.
    let options = Options { plan_by_index: true, ..options };
    let (store, flights): (Arc<dyn Store>, _) = match Database::open(url, &SCHEMA, clock, options).await? {
        Database::Sqlite(sqlite) => (Arc::new(SqliteStore::new(sqlite, sealing)), Flights::SQLITE),
        Database::Postgres(postgres) => (Arc::new(PostgresStore::new(postgres, sealing)), Flights::POSTGRES),
    };
    Ok(Arc::new(BatchingStore::new(store, flights)))
}

/// Brings the store at `url` to [`SCHEMA`].
pub async fn migrate(url: &StoreUrl) -> Result<Migrated, OpenError> {
    Database::migrate(url, &SCHEMA).await
}
