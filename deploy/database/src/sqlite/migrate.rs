//! The schema of a SQLite file.

use rusqlite::Connection;

use super::file::HeldFile;
use crate::error::chain;
use crate::schema::Standing;
use crate::{Migrated, Migration, OpenError, Schema, StoreUrl, clock};

const TABLE: &str = "\
-- database.migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    schema     TEXT   NOT NULL,
    number     BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    applied_at BIGINT NOT NULL,
    PRIMARY KEY (schema, number)
)";

const APPLIED: &str = "\
-- database.migrations_applied
SELECT number
  FROM schema_migrations
 WHERE schema = $1";

const RECORD: &str = "\
-- database.migrations_record
INSERT INTO schema_migrations (schema, number, name, applied_at)
VALUES ($1, $2, $3, $4)";

/// How the file stands to the schema.
pub(super) fn standing(file: &HeldFile, connection: &Connection, schema: &Schema) -> Result<Standing, OpenError> {
    let applied = applied(connection, schema).map_err(|error| file.refused(chain(&error)))?;
    Ok(schema.standing(&applied))
}

/// Applies what is missing, all of it or nothing. The file is held, so nobody else migrates meanwhile.
pub(super) fn migrate(file: &HeldFile, schema: &Schema) -> Result<Migrated, OpenError> {
    let connection = file.connect().map_err(|error| file.refused(chain(&error)))?;
    file.use_wal(&connection)?;
    let mut done = Migrated { schema: schema.name, version: schema.version(), applied: Vec::new() };
    let begin = || {
        // Off while tables are rebuilt, as SQLite's own procedure has it; `check` looks before the commit.
        connection.execute_batch("PRAGMA foreign_keys = OFF; BEGIN EXCLUSIVE;")?;
        connection.execute_batch(TABLE)?;
        applied(&connection, schema)
    };
    let found = begin().map_err(|error| file.refused(chain(&error)))?;
    for migration in schema.missing(&found) {
        apply(&connection, schema, migration).map_err(|error| failed(file, schema, migration, &error))?;
        done.applied.push(migration.name);
    }
    connection.execute_batch("COMMIT").map_err(|error| file.refused(chain(&error)))?;
    done.version = done.version.max(found.into_iter().max().unwrap_or(0));
    Ok(done)
}

fn applied(connection: &Connection, schema: &Schema) -> rusqlite::Result<Vec<u32>> {
    if !connection.table_exists(None, "schema_migrations")? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(APPLIED)?;
    statement.query_map([schema.name], |row| row.get(0))?.collect()
}

fn apply(connection: &Connection, schema: &Schema, migration: &Migration) -> rusqlite::Result<()> {
    connection.execute_batch(migration.sqlite)?;
    check(connection)?;
    let Migration { number, name, .. } = migration;
    connection.execute(RECORD, (schema.name, number, name, clock::wall_micros())).map(drop)
}

/// Refuses rows that a rebuilt table has left pointing at nothing.
fn check(connection: &Connection) -> rusqlite::Result<()> {
    let orphans = connection.prepare("PRAGMA foreign_key_check")?.exists([])?;
    if orphans {
        Err(rusqlite::Error::InvalidParameterName("rows refer to rows that do not exist".into()))
    } else {
        Ok(())
    }
}

fn failed(file: &HeldFile, schema: &Schema, migration: &Migration, error: &rusqlite::Error) -> OpenError {
    OpenError::Migration {
        store: StoreUrl::Sqlite(file.path().to_owned()).to_string(),
        schema: schema.name,
        number: migration.number,
        name: migration.name,
        reason: chain(error),
    }
}
