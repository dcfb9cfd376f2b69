//! Empty, older, newer and contested stores.

use database::testing::{Scratch, postgres_url, sqlite_url};
use database::{Clock, Database, Migration, OpenError, Options, Schema, params};

use crate::store::{SCHEMA, count_things, execute, open};

/// The release before: it knows only the first migration.
const BEFORE: Schema = Schema { name: "things", migrations: &[SCHEMA.migrations[0]] };

/// A release whose second migration cannot be applied; its first statement can.
const BROKEN: Schema = Schema {
    name: "things",
    migrations: &[
        SCHEMA.migrations[0],
        Migration {
            number: 2,
            name: "broken",
            sqlite: "CREATE TABLE half (id TEXT); INSERT INTO nowhere VALUES (1)",
            postgres: "CREATE TABLE half (id TEXT); INSERT INTO nowhere VALUES (1)",
        },
    ],
};

/// Another service with tables of its own in the same database.
const OTHER: Schema = Schema {
    name: "others",
    migrations: &[Migration {
        number: 1,
        name: "others",
        sqlite: "CREATE TABLE others (id TEXT PRIMARY KEY)",
        postgres: "CREATE TABLE others (id TEXT PRIMARY KEY)",
    }],
};

macro_rules! on_both {
    ($($test:ident)*) => {$(
        mod $test {
            #[tokio::test]
            async fn sqlite() {
                super::$test(database::testing::sqlite_url()).await;
            }

            #[tokio::test]
            async fn postgres() {
                super::$test(database::testing::postgres_url(stringify!($test)).await).await;
            }
        }
    )*};
}

on_both! {
    an_empty_store_gets_its_schema
    an_older_store_is_refused_with_the_command
    a_newer_store_is_accepted
    migrating_twice_changes_nothing
    a_broken_migration_changes_nothing
}

async fn try_open(url: &Scratch, schema: &Schema) -> Result<Database, OpenError> {
    Database::open(url, schema, Clock::system(), Options::default()).await
}

async fn an_empty_store_gets_its_schema(url: Scratch) {
    let db = open(&url).await;
    execute(&db, "INSERT INTO things (id, count) VALUES ('a', 1)", params![]).await.unwrap();
    drop(db);
    assert_eq!(count_things(&open(&url).await).await, 1);
}

async fn an_older_store_is_refused_with_the_command(url: Scratch) {
    drop(try_open(&url, &BEFORE).await.unwrap());
    let error = try_open(&url, &SCHEMA).await.unwrap_err();
    assert!(matches!(error, OpenError::SchemaOld { found: 1, needed: 2, .. }), "{error}");
    assert!(error.to_string().contains("run `things migrate --store "), "{error}");
    assert!(!error.to_string().contains('\n'));
    assert_eq!(Database::migrate(&url, &SCHEMA).await.unwrap().applied, ["things_by_count"]);
    open(&url).await;
}

async fn a_newer_store_is_accepted(url: Scratch) {
    drop(open(&url).await);
    let db = try_open(&url, &BEFORE).await.unwrap();
    execute(&db, "INSERT INTO things (id, count) VALUES ('a', 1)", params![]).await.unwrap();
    drop(db);
    let migrated = Database::migrate(&url, &BEFORE).await.unwrap();
    assert_eq!((migrated.version, migrated.applied.len()), (2, 0));
}

async fn migrating_twice_changes_nothing(url: Scratch) {
    let (one, two) = futures::join!(Database::migrate(&url, &SCHEMA), Database::migrate(&url, &SCHEMA));
    let applied = [one.unwrap().applied.len(), two.unwrap().applied.len()];
    assert!(applied == [2, 0] || applied == [0, 2], "{applied:?}");
    let third = Database::migrate(&url, &SCHEMA).await.unwrap();
    assert_eq!(third.to_string(), "the schema of things is already at 2");
}

async fn a_broken_migration_changes_nothing(url: Scratch) {
    let error = Database::migrate(&url, &BROKEN).await.unwrap_err();
    assert!(matches!(error, OpenError::Migration { number: 2, name: "broken", .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    // Not even the first migration is there: all or nothing.
    assert_eq!(Database::migrate(&url, &SCHEMA).await.unwrap().applied, ["things", "things_by_count"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_start_at_once_in_one_postgres_database() {
    let url = postgres_url("two_services").await;
    let opened = futures::join!(try_open(&url, &SCHEMA), try_open(&url, &OTHER), try_open(&url, &SCHEMA));
    let (things, others, _) = (opened.0.unwrap(), opened.1.unwrap(), opened.2.unwrap());
    execute(&others, "INSERT INTO others (id) VALUES ('a')", params![]).await.unwrap();
    assert_eq!(count_things(&things).await, 0);
}

#[tokio::test]
async fn migrate_waits_for_a_sqlite_file_only_so_long() {
    let url = sqlite_url();
    let db = open(&url).await;
    tokio::time::pause();
    let error = Database::migrate(&url, &SCHEMA).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(db);
}
