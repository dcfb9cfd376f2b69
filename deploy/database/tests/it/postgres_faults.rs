//! A network that fails at the worst moment, and a pooler in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use database::testing::{Scratch, postgres_url};
use database::{Clock, Database, DatabaseError, Options, StoreUrl, params};
use futures::future::join_all;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;

use crate::proxy::{Cut, Mode, Proxy};
use crate::store::{SCHEMA, add, count_things, execute, impatient, number, open, query};

async fn open_with(url: &StoreUrl, options: Options) -> Database {
    Database::open(url, &SCHEMA, Clock::system(), options).await.unwrap()
}

/// A store behind a proxy, and the same store without it.
async fn proxied(name: &str, options: Options) -> (Proxy, Database, Database, Scratch) {
    let scratch = postgres_url(name).await;
    let proxy = Proxy::before(&scratch).await;
    let db = open_with(&proxy.url(&scratch), options).await;
    let direct = open(&scratch).await;
    (proxy, db, direct, scratch)
}

async fn add_counted(db: &Database) -> (Result<u64, DatabaseError>, u32) {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let work = db.transact("add", move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { add(tx, "a").await })
    });
    (work.await, runs.load(Ordering::SeqCst))
}

// === the commit ===

#[tokio::test]
async fn a_connection_lost_after_the_commit_arrived_is_unknown_and_not_repeated() {
    let (proxy, db, direct, _scratch) = proxied("commit_arrived", Options::default()).await;
    proxy.cut_at(Cut { text: "COMMIT\0", is_forwarded: true });
    let (done, runs) = add_counted(&db).await;
    assert!(matches!(done, Err(DatabaseError::CommitUnknown)), "{done:?}");
    assert_eq!(runs, 1);
    assert_eq!(count_things(&direct).await, 1, "it was done");
}

#[tokio::test]
async fn a_connection_lost_before_the_commit_arrived_is_unknown_too() {
    let (proxy, db, direct, _scratch) = proxied("commit_lost", Options::default()).await;
    proxy.cut_at(Cut { text: "COMMIT\0", is_forwarded: false });
    let (done, runs) = add_counted(&db).await;
    assert!(matches!(done, Err(DatabaseError::CommitUnknown)), "{done:?}");
    assert_eq!(runs, 1);
    assert_eq!(count_things(&direct).await, 0, "it was not done");
}

#[tokio::test]
async fn a_connection_lost_before_the_commit_was_sent_is_repeated() {
    let (proxy, db, direct, _scratch) = proxied("before_commit", Options::default()).await;
    for text in ["BEGIN", "INSERT INTO things"] {
        execute(&direct, "DELETE FROM things", params![]).await.unwrap();
        proxy.cut_at(Cut { text, is_forwarded: true });
        let (done, _) = add_counted(&db).await;
        assert_eq!(done.unwrap(), 1, "{text}");
        assert_eq!(count_things(&direct).await, 1);
    }
}

#[tokio::test]
async fn own_sql_that_writes_is_unknown_when_its_connection_is_lost() {
    let (proxy, db, direct, _scratch) = proxied("own_sql_lost", Options::default()).await;
    let Database::Postgres(postgres) = &db else { panic!("not Postgres") };
    let insert = "INSERT INTO things (id, count) VALUES ($1, 0)";
    let write = |id: &'static str| async move {
        postgres.client().await.unwrap().write(insert, &[(&id, Type::TEXT)]).await.map(drop)
    };
    write("first").await.unwrap();
    // Prepared by now, so only the values travel.
    proxy.cut_at(Cut { text: "second", is_forwarded: true });
    assert!(matches!(write("second").await, Err(DatabaseError::CommitUnknown)));
    assert_eq!(count_things(&direct).await, 2);
    proxy.cut_at(Cut { text: "SELECT count", is_forwarded: true });
    let read = postgres.client().await.unwrap().read("SELECT count FROM things", &[]).await;
    assert!(matches!(read, Err(DatabaseError::Unavailable(_))), "{read:?}");
    write("third").await.unwrap();
}

#[tokio::test]
async fn a_silent_server_during_the_commit_is_unknown() {
    let (proxy, db, _direct, _scratch) = proxied("silent_commit", impatient()).await;
    let silence = Arc::new(proxy);
    let work = db.transact("add", move |tx| {
        let silence = silence.clone();
        Box::pin(async move {
            add(tx, "a").await?;
            silence.set(Mode::Silent);
            Ok::<_, DatabaseError>(())
        })
    });
    assert!(matches!(work.await, Err(DatabaseError::CommitUnknown)));
}

// === a server that is away ===

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_unavailable_soon_and_is_used_again_when_it_is_back() {
    let (proxy, db, _direct, _scratch) = proxied("down", Options::default()).await;
    join_all((0..32).map(|_| query(&db, "SELECT CAST(pg_sleep(0.02) AS TEXT) AS slept", params![]))).await;
    proxy.set(Mode::Down);
    let started = Instant::now();
    let answers = join_all((0..64).map(|_| add_counted(&db))).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(answers.iter().all(|(answer, _)| matches!(answer, Err(DatabaseError::Unavailable(_)))));
    assert!(matches!(db.ping().await, Err(DatabaseError::Unavailable(_))));
    proxy.set(Mode::Pass);
    db.ping().await.unwrap();
    assert_eq!(add_counted(&db).await.0.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_unavailable_in_bounded_time_and_is_used_again() {
    let options = Options { pool_size: 4, ..impatient() };
    let (proxy, db, direct, _scratch) = proxied("silent", options).await;
    join_all((0..8).map(|_| query(&db, "SELECT CAST(pg_sleep(0.02) AS TEXT) AS slept", params![]))).await;
    proxy.set(Mode::Silent);
    let started = Instant::now();
    let answers = join_all((0..16).map(|_| add_counted(&db))).await;
    // A statement's second and its second of grace, then 2 s for the host, with room for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(answers.iter().all(|(answer, _)| matches!(answer, Err(DatabaseError::Unavailable(_)))), "{answers:?}");
    proxy.set(Mode::Pass);
    // What was buffered while the server was silent may still arrive there, but never as a commit.
    assert_eq!(add_counted(&db).await.0.unwrap(), 1);
    assert_eq!(count_things(&direct).await, 1);
}

#[tokio::test]
async fn a_greeting_that_outlasts_its_caller_is_for_the_next_one() {
    let options = Options { pool_size: 1, connect_timeout: Duration::from_secs(10), ..Options::default() };
    let (proxy, db, _direct, _scratch) = proxied("slow_greeting", options).await;
    let before = proxy.connections();
    proxy.set(Mode::Silent);
    assert!(timeout(Duration::from_millis(100), db.ping()).await.is_err(), "nobody greets");
    proxy.set(Mode::Pass);
    db.ping().await.unwrap();
    assert_eq!(proxy.connections(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_takes_those_of_its_age_along() {
    let (proxy, db, _direct, _scratch) = proxied("generation", Options::default()).await;
    join_all((0..32).map(|_| query(&db, "SELECT CAST(pg_sleep(0.02) AS TEXT) AS slept", params![]))).await;
    let before = proxy.connections();
    proxy.cut_at(Cut { text: "INSERT INTO things", is_forwarded: false });
    let (done, runs) = add_counted(&db).await;
    assert_eq!((done.unwrap(), runs), (1, 2));
    assert_eq!(proxy.connections(), before + 1, "one new connection, and none was tried in vain");
}

// === a pooler ===

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_like_pgbouncer_nothing_is_kept_on_the_server_postgres() {
    let scratch = postgres_url("pooler").await;
    let proxy = Proxy::like_pgbouncer(&scratch).await;
    let db = open_with(&proxy.url(&scratch), Options { pool_size: 1, ..Options::default() }).await;
    assert_eq!(add_counted(&db).await.0.unwrap(), 1);
    let rows = query(&db, "SELECT id, count FROM things WHERE id = $1", params!["a"]).await.unwrap();
    assert_eq!(rows[0].get::<i64>("count").unwrap(), 0);
    let Database::Postgres(postgres) = &db else { panic!("not Postgres") };
    let client = postgres.client().await.unwrap();
    let ids = vec!["x", "y"];
    let insert = "INSERT INTO things (id, count) SELECT id, 0 FROM UNNEST($1) AS id";
    client.write(insert, &[(&ids, Type::TEXT_ARRAY)]).await.unwrap();
    drop(client);
    assert_eq!(count_things(&db).await, 3);
    assert_eq!(number(&db, "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_prepared_statements").await, 0);
    let bounds =
        "SELECT current_setting('statement_timeout') || current_setting('idle_in_transaction_session_timeout') AS both";
    assert_eq!(query(&db, bounds, params![]).await.unwrap()[0].get::<String>("both").unwrap(), "5s5s");
}
