//! A store with a few tables, and the shortest ways to use it.

use std::time::Duration;

use database::testing::{Scratch, direct_postgres_url, postgres_url, sqlite_url};
use database::{Clock, Database, DatabaseError, Hand, Migration, Options, Row, Schema, StoreUrl, Tx, Value};

pub const SCHEMA: Schema = Schema {
    name: "things",
    migrations: &[
        Migration {
            number: 1,
            name: "things",
            sqlite: "CREATE TABLE things (id TEXT PRIMARY KEY, count BIGINT NOT NULL, note TEXT, body BLOB);
                     CREATE TABLE parts (id TEXT PRIMARY KEY,
                                         thing TEXT NOT NULL REFERENCES things (id) DEFERRABLE INITIALLY IMMEDIATE)",
            postgres: "CREATE TABLE things (id TEXT PRIMARY KEY, count BIGINT NOT NULL, note TEXT, body BYTEA);
                       CREATE TABLE parts (id TEXT PRIMARY KEY,
                                           thing TEXT NOT NULL REFERENCES things (id) DEFERRABLE INITIALLY IMMEDIATE)",
        },
        Migration {
            number: 2,
            name: "things_by_count",
            sqlite: "CREATE INDEX things_by_count ON things (count)",
            postgres: "CREATE INDEX things_by_count ON things (count)",
        },
    ],
};

/// An open store of a test's own.
pub struct Store {
    pub db: Database,
    pub hand: Hand,
    pub scratch: Scratch,
}

impl Store {
    pub async fn sqlite() -> Self {
        Self::over(sqlite_url(), Options::default()).await
    }

    pub async fn postgres(name: &str) -> Self {
        Self::over(postgres_url(name).await, Options::default()).await
    }

    /// Past any pooler: for tests of what a session of its own keeps.
    pub async fn direct_postgres(name: &str) -> Self {
        Self::over(direct_postgres_url(name).await, Options::default()).await
    }

    pub async fn over(scratch: Scratch, options: Options) -> Self {
        let (clock, hand) = Clock::by_hand();
        let db = Database::open(&scratch, &SCHEMA, clock, options).await.unwrap();
        Self { db, hand, scratch }
    }
}

pub async fn open(url: &StoreUrl) -> Database {
    Database::open(url, &SCHEMA, Clock::system(), Options::default()).await.unwrap()
}

/// Small, so that what is bounded is seen to be bounded soon.
pub fn impatient() -> Options {
    Options {
        pool_size: 1,
        pool_wait: Duration::from_millis(300),
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
        idle_in_transaction_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

/// Runs one statement as a transaction of its own.
pub async fn execute(db: &Database, sql: &'static str, params: Vec<Value>) -> Result<u64, DatabaseError> {
    db.transact("execute", move |tx| {
        let params = params.clone();
        Box::pin(async move { tx.execute(sql, &params).await })
    })
    .await
}

/// Reads rows.
pub async fn query(db: &Database, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>, DatabaseError> {
    db.read("query", move |tx| {
        let params = params.clone();
        Box::pin(async move { tx.query(sql, &params).await })
    })
    .await
}

/// Reads one number.
pub async fn number(db: &Database, sql: &'static str) -> i64 {
    query(db, sql, vec![]).await.unwrap()[0].get(0).unwrap()
}

/// Adds a thing inside a running transaction.
pub async fn add(tx: &mut Tx<'_>, id: &str) -> Result<u64, DatabaseError> {
    tx.execute("INSERT INTO things (id, count) VALUES ($1, $2)", &database::params![id, 0_i64]).await
}

pub async fn count_things(db: &Database) -> i64 {
    number(db, "SELECT COUNT(*) FROM things").await
}
