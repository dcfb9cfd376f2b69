//! What only Postgres promises: the pool, the sessions, the retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use database::testing::{Scratch, direct_postgres_url, postgres_url};
use database::{Clock, Database, DatabaseError, OpenError, Options, Postgres, StoreUrl, params};
use tokio::sync::Barrier;
use tokio::time::Instant;
use tokio_postgres::types::Type;

use crate::store::{SCHEMA, Store, add, count_things, execute, impatient, number, open, query};

async fn try_open(url: &StoreUrl) -> Result<Database, OpenError> {
    Database::open(url, &SCHEMA, Clock::system(), Options::default()).await
}

fn postgres(db: &Database) -> &Postgres {
    match db {
        Database::Postgres(postgres) => postgres,
        Database::Sqlite(_) => panic!("not Postgres"),
    }
}

/// The same database at another address or with other parameters.
fn at(scratch: &Scratch, hosts: &str, parameters: &str) -> StoreUrl {
    let StoreUrl::Postgres(config) = scratch.url() else { panic!("not Postgres") };
    let (user, name) = (config.get_user().unwrap(), config.get_dbname().unwrap());
    format!("postgres://{user}:secret@{hosts}/{name}?{parameters}").parse().unwrap()
}

fn address(scratch: &Scratch) -> String {
    let StoreUrl::Postgres(config) = scratch.url() else { panic!("not Postgres") };
    let [tokio_postgres::config::Host::Tcp(host)] = config.get_hosts() else { panic!("one TCP host") };
    format!("{host}:{}", config.get_ports()[0])
}

/// An address where nobody listens.
fn nobody() -> String {
    free_port::one().unwrap().to_string()
}

async fn alter(db: &Database, scratch: &Scratch, setting: &str) {
    let StoreUrl::Postgres(config) = scratch.url() else { panic!("not Postgres") };
    let sql = format!("ALTER DATABASE \"{}\" SET {setting}", config.get_dbname().unwrap());
    postgres(db).client().await.unwrap().write(&sql, &[]).await.unwrap();
}

fn counter() -> (Arc<AtomicU32>, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    (runs.clone(), runs)
}

// === opening ===

#[tokio::test]
async fn an_unreachable_server_is_one_sentence_soon() {
    let scratch = postgres_url("unreachable").await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for hosts in [nobody(), silent.local_addr().unwrap().to_string()] {
        let started = Instant::now();
        let error = try_open(&at(&scratch, &hosts, "")).await.unwrap_err();
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
        let sentence = error.to_string();
        assert!(sentence.contains(&hosts) && !sentence.contains("secret") && !sentence.contains('\n'), "{sentence}");
    }
}

#[tokio::test]
async fn a_missing_database_is_refused() {
    let scratch = postgres_url("missing").await;
    let url: StoreUrl = format!("postgres://postgres@{}/no_such_database", address(&scratch)).parse().unwrap();
    let error = try_open(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("no_such_database"), "{error}");
}

#[tokio::test]
async fn the_primary_is_found_among_several_hosts() {
    let scratch = postgres_url("several").await;
    let db = try_open(&at(&scratch, &format!("{},{}", nobody(), address(&scratch)), "")).await.unwrap();
    assert_eq!(count_things(&db).await, 0);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_not_the_primary() {
    // Direct: a pooler goes on with sessions from before the default was changed.
    let scratch = direct_postgres_url("read_only").await;
    let db = open(&scratch).await;
    alter(&db, &scratch, "default_transaction_read_only = on").await;
    let error = try_open(&scratch).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("does not allow writes"), "{error}");
}

#[tokio::test]
async fn commits_that_may_be_lost_are_refused_at_the_start() {
    // Direct: a pooler goes on with sessions from before the default was changed.
    let scratch = direct_postgres_url("synchronous_commit").await;
    let db = open(&scratch).await;
    for (setting, is_safe) in [("off", false), ("local", false), ("remote_write", true), ("remote_apply", true)] {
        alter(&db, &scratch, &format!("synchronous_commit = {setting}")).await;
        match try_open(&scratch).await {
            Ok(_) => assert!(is_safe, "{setting}"),
            Err(error) => {
                assert!(!is_safe && matches!(error, OpenError::Unsafe { .. }), "{setting}: {error}");
                assert!(error.to_string().contains(&format!("synchronous_commit is {setting}")), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn sessions_are_named_and_bounded() {
    // Direct: behind a pooler a session has neither settings nor prepared statements of its own.
    let store = Store::direct_postgres("bounded").await;
    let setting = |name: &'static str| {
        let db = store.db.clone();
        async move {
            let rows = query(&db, "SELECT current_setting($1) AS value", params![name]).await.unwrap();
            rows[0].get::<String>("value").unwrap()
        }
    };
    assert_eq!(setting("application_name").await, "things");
    assert_eq!(setting("statement_timeout").await, "5s");
    assert_eq!(setting("idle_in_transaction_session_timeout").await, "5s");
    assert_eq!(setting("transaction_isolation").await, "repeatable read");
    let prepared =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_prepared_statements WHERE statement LIKE 'SELECT current_setting(%'";
    assert_eq!(number(&store.db, prepared).await, 1, "one text is prepared once");
}

#[tokio::test]
async fn sessions_plan_by_index_when_asked_to() {
    let options = Options { pool_size: 1, plan_by_index: true, ..Options::default() };
    // Direct: behind a pooler nothing is prepared, and the planner is left as it is.
    let store = Store::over(direct_postgres_url("plan_by_index").await, options).await;
    for (setting, value) in [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")] {
        let rows = query(&store.db, "SELECT current_setting($1) AS value", params![setting]).await.unwrap();
        assert_eq!(rows[0].get::<String>("value").unwrap(), value, "{setting}");
    }
}

#[tokio::test]
async fn text_that_changes_with_its_values_does_not_fill_the_session() {
    // Direct: behind a pooler nothing is prepared.
    let options = Options { pool_size: 1, ..Options::default() };
    let store = Store::over(direct_postgres_url("changing_text").await, options).await;
    for place in 0..300 {
        postgres(&store.db).client().await.unwrap().read(&format!("SELECT {place}"), &[]).await.unwrap();
    }
    let kept = number(&store.db, "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_prepared_statements").await;
    assert!((40..=257).contains(&kept), "{kept}");
}

#[tokio::test]
async fn the_operators_own_options_win() {
    // Direct: a pooler refuses options in the address.
    let scratch = direct_postgres_url("own_options").await;
    let url = at(&scratch, &address(&scratch), "application_name=mine&options=-c%20statement_timeout%3D7s");
    let db = try_open(&url).await.unwrap();
    let rows = query(
        &db,
        "SELECT current_setting('statement_timeout') AS t, current_setting('application_name') AS n",
        params![],
    );
    let rows = rows.await.unwrap();
    assert_eq!(rows[0].get::<String>("t").unwrap(), "7s");
    assert_eq!(rows[0].get::<String>("n").unwrap(), "mine");
}

// === own SQL ===

#[tokio::test]
async fn own_sql_uses_the_types_of_postgres() {
    let store = Store::postgres("own_sql").await;
    let client = postgres(&store.db).client().await.unwrap();
    let (ids, counts) = (vec!["a", "b", "c"], vec![1_i64, 2, 3]);
    let insert = "INSERT INTO things (id, count) SELECT * FROM UNNEST($1, $2) RETURNING id";
    let rows = client.write(insert, &[(&ids, Type::TEXT_ARRAY), (&counts, Type::INT8_ARRAY)]).await.unwrap();
    assert_eq!(rows.len(), 3);
    let taken = client.write(insert, &[(&ids, Type::TEXT_ARRAY), (&counts, Type::INT8_ARRAY)]).await.unwrap_err();
    assert!(matches!(taken, DatabaseError::Statement(_)) && taken.is_taken(), "{taken:?}");
    let rows = client.read("SELECT count FROM things WHERE id = $1", &[(&"b", Type::TEXT)]).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 2);
    assert_eq!(postgres(&store.db).clock().offset(), Duration::ZERO);
}

#[tokio::test]
async fn unknown_column_types_are_refused_with_the_cast_to_write() {
    let store = Store::postgres("column_types").await;
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('a', 1)", params![]).await.unwrap();
    let error = query(&store.db, "SELECT SUM(count) AS total FROM things", params![]).await.unwrap_err().to_string();
    assert!(error.contains("column `total` is of type numeric") && error.contains("CAST"), "{error}");
}

// === retries ===

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_tried_again_and_both_win() {
    let store = Store::postgres("deadlock").await;
    alter(&store.db, &store.scratch, "deadlock_timeout = '20ms'").await;
    let db = open(&store.scratch).await;
    execute(&db, "INSERT INTO things (id, count) VALUES ('a', 0), ('b', 0)", params![]).await.unwrap();
    let both_hold_one = Arc::new(Barrier::new(2));
    let (runs, counted) = counter();
    let cross = |first: &'static str, second: &'static str| {
        let (counted, both_hold_one) = (counted.clone(), both_hold_one.clone());
        db.transact("cross", move |tx| {
            let is_first_round = counted.fetch_add(1, Ordering::SeqCst) < 2;
            let both_hold_one = both_hold_one.clone();
            Box::pin(async move {
                tx.execute("UPDATE things SET count = count + 1 WHERE id = $1", &params![first]).await?;
                if is_first_round {
                    both_hold_one.wait().await;
                }
                tx.execute("UPDATE things SET count = count + 1 WHERE id = $1", &params![second]).await
            })
        })
    };
    let (one, two) = futures::join!(cross("a", "b"), cross("b", "a"));
    assert_eq!((one.unwrap(), two.unwrap()), (1, 1));
    assert_eq!(runs.load(Ordering::SeqCst), 3, "one of them ran twice");
    assert_eq!(number(&db, "SELECT CAST(SUM(count) AS BIGINT) FROM things").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_without_end_are_a_conflict() {
    let store = Store::postgres("conflict").await;
    let (runs, counted) = counter();
    let work = store.db.transact("always", move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { tx.execute("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$", &[]).await })
    });
    let error = work.await.unwrap_err();
    assert!(matches!(error, DatabaseError::Conflict) && error.is_transient(), "{error:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 11);
}

#[tokio::test]
async fn a_key_that_stays_taken_is_a_bug_in_the_end() {
    let store = Store::postgres("taken").await;
    let (runs, counted) = counter();
    let add_twice = || {
        let counted = counted.clone();
        store.db.transact("add", move |tx| {
            counted.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { add(tx, "a").await })
        })
    };
    add_twice().await.unwrap();
    let error = add_twice().await.unwrap_err();
    assert!(matches!(error, DatabaseError::Statement(_)), "{error:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1 + 3);
}

// === sessions that end ===

/// Ends its own session in the first `times` runs.
async fn add_after_dying(db: &Database, times: u32) -> (Result<u64, DatabaseError>, u32) {
    let (runs, counted) = counter();
    let work = db.transact("dies", move |tx| {
        let is_dying = counted.fetch_add(1, Ordering::SeqCst) < times;
        Box::pin(async move {
            add(tx, "a").await?;
            if is_dying {
                tx.query("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await?;
            }
            add(tx, "b").await
        })
    });
    (work.await, runs.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_session_that_ends_before_the_commit_is_replaced() {
    let store = Store::postgres("ends_before").await;
    let (done, runs) = add_after_dying(&store.db, 1).await;
    assert_eq!((done.unwrap(), runs), (1, 2));
    assert_eq!(count_things(&store.db).await, 2);
}

#[tokio::test]
async fn sessions_that_keep_ending_are_unavailable() {
    let store = Store::postgres("keep_ending").await;
    let (done, runs) = add_after_dying(&store.db, u32::MAX).await;
    assert!(matches!(done, Err(DatabaseError::Unavailable(_))), "{done:?}");
    assert_eq!(runs, 3);
    assert_eq!(count_things(&store.db).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_that_were_ended_are_replaced_without_an_error() {
    let store = Store::postgres("idle_ended").await;
    // Several at once, so that the pool holds several.
    let sleep = || query(&store.db, "SELECT CAST(pg_sleep(0.05) AS TEXT) AS slept", params![]);
    futures::future::try_join_all((0..8).map(|_| sleep())).await.unwrap();
    let others = "\
SELECT CAST(COUNT(pg_terminate_backend(pid)) AS BIGINT)
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(number(&store.db, others).await > 1, "the pool held several");
    let all = futures::future::join_all((0..16).map(|_| count_things(&store.db))).await;
    assert_eq!(all, vec![0; 16]);
}

#[tokio::test]
async fn a_session_that_has_become_read_only_is_replaced() {
    // Direct: behind a pooler the session that becomes read-only is everybody's.
    let options = Options { pool_size: 1, ..Options::default() };
    let store = Store::over(direct_postgres_url("became_read_only").await, options).await;
    let demote = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";
    for _ in 0..2 {
        postgres(&store.db).client().await.unwrap().read(demote, &[]).await.unwrap();
        execute(&store.db, "INSERT INTO things (id, count) VALUES ($1, 1)", params![uuid::Uuid::new_v4()])
            .await
            .unwrap();
    }
    postgres(&store.db).client().await.unwrap().read(demote, &[]).await.unwrap();
    assert!(matches!(store.db.ping().await, Err(DatabaseError::Unavailable(_))));
    store.db.ping().await.unwrap();
    assert_eq!(count_things(&store.db).await, 2);
}

#[tokio::test]
async fn a_statement_past_its_time_is_unavailable_and_the_session_is_kept() {
    let store = Store::over(postgres_url("past_its_time").await, impatient()).await;
    let pid = "SELECT CAST(pg_backend_pid() AS BIGINT)";
    let before = number(&store.db, pid).await;
    let error = query(&store.db, "SELECT CAST(pg_sleep(5) AS TEXT) AS slept", params![]).await.unwrap_err();
    assert!(matches!(error, DatabaseError::Unavailable(_)), "{error:?}");
    assert_eq!(number(&store.db, pid).await, before);
}

#[tokio::test]
async fn a_stopped_process_does_not_hold_rows_for_ever() {
    let store = Store::over(postgres_url("stopped").await, impatient()).await;
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('a', 0)", params![]).await.unwrap();
    let (holds, is_held) = tokio::sync::oneshot::channel();
    let holds = std::sync::Mutex::new(Some(holds));
    let (_go_on, stopped) = tokio::sync::watch::channel(());
    let stuck = store.db.transact("stuck", move |tx| {
        let (holds, mut stopped) = (holds.lock().unwrap().take(), stopped.clone());
        Box::pin(async move {
            tx.execute("UPDATE things SET count = 1 WHERE id = 'a'", &[]).await?;
            let _ = holds.unwrap().send(());
            let _ = stopped.changed().await;
            Ok::<_, DatabaseError>(())
        })
    });
    // Another process asks for the row that the stopped one holds.
    let other = Database::open(&store.scratch, &SCHEMA, Clock::system(), Options::default()).await.unwrap();
    let waits = async {
        is_held.await.unwrap();
        execute(&other, "UPDATE things SET count = 2 WHERE id = 'a'", params![]).await
    };
    tokio::select! {
        _ = stuck => panic!("it is stopped"),
        touched = waits => assert_eq!(touched.unwrap(), 1),
    }
    assert_eq!(number(&other, "SELECT count FROM things").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_answers_unavailable_soon() {
    let store = Store::over(postgres_url("exhausted").await, impatient()).await;
    let held = postgres(&store.db).client().await.unwrap();
    let started = Instant::now();
    let error = execute(&store.db, "INSERT INTO things (id, count) VALUES ('a', 0)", params![]).await.unwrap_err();
    assert!(matches!(error, DatabaseError::Unavailable(_)), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
    drop(held);
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('a', 0)", params![]).await.unwrap();
}

#[tokio::test]
async fn a_scratch_database_is_gone_when_it_is_dropped() {
    let keeper = Store::postgres("keeper").await;
    let scratch = postgres_url("scratch").await;
    let StoreUrl::Postgres(config) = scratch.url().clone() else { panic!("not Postgres") };
    let exists = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM pg_database WHERE datname = $1";
    let count = || query(&keeper.db, exists, params![config.get_dbname().unwrap()]);
    assert_eq!(count().await.unwrap()[0].get::<i64>("n").unwrap(), 1);
    drop(scratch);
    assert_eq!(count().await.unwrap()[0].get::<i64>("n").unwrap(), 0);
}
