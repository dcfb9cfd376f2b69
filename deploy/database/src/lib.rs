//! Opens SQLite or Postgres the safe way, applies migrations, and runs one transaction text on both.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use database::{Clock, Database, DatabaseError, Migration, Options, Schema, params};
//!
//! const SCHEMA: Schema = Schema {
//!     name: "greeter",
//!     migrations: &[Migration {
//!         number: 1,
//!         name: "greetings",
//!         sqlite: "CREATE TABLE greetings (name TEXT PRIMARY KEY, seen_at BIGINT NOT NULL)",
//!         postgres: "CREATE TABLE greetings (name TEXT PRIMARY KEY, seen_at BIGINT NOT NULL)",
//!     }],
//! };
//!
//! const GREET: &str = "\
//! -- greeter.greet
//! INSERT INTO greetings (name, seen_at)
//! VALUES ($1, $2)
//!     ON CONFLICT (name) DO NOTHING";
//!
//! let db = Database::open(&"sqlite:greeter.db".parse()?, &SCHEMA, Clock::system(), Options::default()).await?;
//! let name = "Ada".to_owned();
//! let is_new: Result<bool, DatabaseError> = db
//!     .transact("greet", move |tx| {
//!         let name = name.clone(); // the closure runs again when the transaction is retried
//!         Box::pin(async move {
//!             let now = tx.now();
//!             Ok(tx.execute(GREET, &params![name, now]).await? == 1)
//!         })
//!     })
//!     .await;
//! # Ok(()) }
//! ```
//!
//! # One text for both engines
//!
//! Placeholders are `$1…$n`. Values are `TEXT`, `BIGINT` and `BYTEA`/`BLOB` ([`Value`]); booleans are `BIGINT` 0 and 1,
//! instants `BIGINT` microseconds since 1970 ([`Tx::now`]). What both engines understand alike: `ON CONFLICT … DO
//! NOTHING | DO UPDATE`, `RETURNING`, `CASE`, `COALESCE`, `EXISTS`, `LIMIT $n`, `IS NOT DISTINCT FROM`, common table
//! expressions. What they do not: `SUM` of `BIGINT` is `NUMERIC` in Postgres, so write `CAST(SUM(x) AS BIGINT)`;
//! `= ANY($1)` and `GREATEST` do not exist in SQLite. A trailing `FOR UPDATE` (also with `SKIP LOCKED`) is left out on
//! SQLite, where a transaction is alone anyway.
//!
//! # Many rows at once
//!
//! `{rows}` in the text of [`Tx::execute_rows`] and [`Tx::query_rows`] stands for any number of rows: `INSERT INTO t (a, b) {rows}`,
//! `WITH asked (id, n) AS ({rows}) UPDATE t SET … FROM asked WHERE t.id = asked.id`, `WHERE id IN ({rows})`. On Postgres that is one
//! statement with an array a column, so one round trip and one prepared text; SQLite runs the statement once a row.

mod clock;
mod database;
mod error;
mod failure;
mod options;
mod postgres;
mod row;
mod rows;
mod schema;
mod sqlite;
mod tx;
mod url;
mod value;

#[cfg(feature = "testing")]
pub mod testing;

pub use futures::future::BoxFuture;

pub use self::clock::{Clock, Hand};
pub use self::database::Database;
pub use self::error::{Cause, DatabaseError, OpenError};
pub use self::options::Options;
pub use self::postgres::{Connection, PoolStatus, Postgres};
pub use self::row::{ColumnIndex, Row};
pub use self::schema::{Migrated, Migration, Schema};
pub use self::sqlite::Sqlite;
pub use self::tx::Tx;
pub use self::url::{PostgresUrl, SslError, StoreUrl, StoreUrlError};
pub use self::value::{FromValue, Kind, Typed, Value};
