//! The schema of a Postgres database.

use tokio_postgres::{Client, Error};

use crate::error::chain;
use crate::schema::Standing;
use crate::{Migrated, Migration, OpenError, Schema};

/// Held by whoever changes any schema of the database, since all of them share the table of applied migrations. The
/// number is `database` in ASCII.
const LOCK: &str = "\
-- database.migrations_lock
SELECT pg_advisory_xact_lock(7233183901389595493)";

/// A migration may take its time, but not a queue of requests behind a table lock that it cannot get.
const BEGIN: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL lock_timeout = '60s'";

const LOCK_TABLES_BRIEFLY: &str = "SET LOCAL lock_timeout = '5s'";

const TABLE: &str = "\
-- database.migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    schema     TEXT   NOT NULL,
    number     BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    applied_at BIGINT NOT NULL,
    PRIMARY KEY (schema, number)
)";

const TABLE_EXISTS: &str = "\
-- database.migrations_table_exists
SELECT to_regclass('schema_migrations') IS NOT NULL";

const APPLIED: &str = "\
-- database.migrations_applied
SELECT number
  FROM schema_migrations
 WHERE schema = $1";

const RECORD: &str = "\
-- database.migrations_record
INSERT INTO schema_migrations (schema, number, name, applied_at)
VALUES ($1, $2, $3, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT))";

/// How the database stands to the schema; changes nothing.
pub(super) async fn standing(store: &str, client: &Client, schema: &Schema) -> Result<Standing, OpenError> {
    let look = async {
        let exists: bool = client.query_typed_one(TABLE_EXISTS, &[]).await?.get(0);
        if exists { applied(client, schema).await } else { Ok(Vec::new()) }
    };
    let applied = look.await.map_err(|error| refused(store, &error))?;
    Ok(schema.standing(&applied))
}

/// Applies what is missing, all of it or nothing. Whoever comes second waits for the lock and finds nothing missing.
pub(super) async fn migrate(store: &str, client: &Client, schema: &Schema) -> Result<Migrated, OpenError> {
    let begin = async {
        client.batch_execute(BEGIN).await?;
        client.batch_execute(LOCK).await?;
        client.batch_execute(LOCK_TABLES_BRIEFLY).await?;
        client.batch_execute(TABLE).await?;
        applied(client, schema).await
    };
    let found = begin.await.map_err(|error| refused(store, &error))?;
    let version = schema.version().max(found.iter().copied().max().unwrap_or(0));
    let mut done = Migrated { schema: schema.name, version, applied: Vec::new() };
    for migration in schema.missing(&found) {
        let applied = apply(client, schema, migration).await;
        applied.map_err(|error| failed(store, schema, migration, &error))?;
        done.applied.push(migration.name);
    }
    client.batch_execute("COMMIT").await.map_err(|error| refused(store, &error))?;
    Ok(done)
}

async fn applied(client: &Client, schema: &Schema) -> Result<Vec<u32>, Error> {
    let rows = client.query_typed(APPLIED, &[(&schema.name, tokio_postgres::types::Type::TEXT)]).await?;
    // Numbers are written from a `u32`; anything else is not ours and counts as a later release's.
    rows.iter().map(|row| Ok(u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX))).collect()
}

async fn apply(client: &Client, schema: &Schema, migration: &Migration) -> Result<(), Error> {
    use tokio_postgres::types::Type;
    client.batch_execute(migration.postgres).await?;
    let number = i64::from(migration.number);
    let record = [(&schema.name as _, Type::TEXT), (&number as _, Type::INT8), (&migration.name as _, Type::TEXT)];
    client.execute_typed(RECORD, &record).await.map(drop)
}

fn failed(store: &str, schema: &Schema, migration: &Migration, error: &Error) -> OpenError {
    OpenError::Migration {
        store: store.to_owned(),
        schema: schema.name,
        number: migration.number,
        name: migration.name,
        reason: chain(error),
    }
}

/// Sorts what the server said from what kept it from saying anything.
pub(super) fn refused(store: &str, error: &Error) -> OpenError {
    let (store, reason) = (store.to_owned(), chain(error));
    match error.as_db_error() {
        Some(_) => OpenError::Refused { store, reason },
        None => OpenError::Unreachable { store, reason },
    }
}
