//! The same promises over both engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use database::testing::{postgres_url, sqlite_url};
use database::{Database, DatabaseError, Options, Value, params};
use futures::FutureExt;
use futures::future::{join_all, poll_immediate};
use uuid::Uuid;

use crate::store::{Store, add, count_things, execute, number, query};

on_both! {
    ok_commits_and_a_reader_sees_it
    err_rolls_back
    a_swallowed_failure_commits_nothing
    a_statement_after_a_failed_one_fails_too
    values_come_back_as_they_went
    parameters_go_by_number
    one_text_runs_on_both
    readers_cannot_write
    readers_see_one_snapshot
    now_stands_still_within_a_transaction_and_is_moved_by_hand
    increments_are_not_lost
    look_then_insert_inserts_once
    a_guard_in_the_update_never_oversells
    a_panic_rolls_back_and_the_store_goes_on
    several_rows_are_not_one
    a_bug_is_not_transient
    ping_answers
}

/// A service's own error.
#[derive(Debug)]
enum Refused {
    SoldOut,
    Database(#[expect(dead_code, reason = "shown by a failing test")] DatabaseError),
}

impl From<DatabaseError> for Refused {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

async fn ok_commits_and_a_reader_sees_it(store: Store) {
    let touched = store.db.transact("add", |tx| Box::pin(async { add(tx, "a").await })).await;
    assert_eq!(touched.unwrap(), 1);
    let rows = query(&store.db, "SELECT id, count FROM things", params![]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].columns(), ["id", "count"]);
    assert_eq!(rows[0].get::<String>("id").unwrap(), "a");
}

async fn err_rolls_back(store: Store) {
    let work = store.db.transact("refuse", |tx| {
        Box::pin(async {
            add(tx, "a").await?;
            Err::<(), _>(Refused::SoldOut)
        })
    });
    assert!(matches!(work.await, Err(Refused::SoldOut)));
    assert_eq!(count_things(&store.db).await, 0);
}

async fn a_swallowed_failure_commits_nothing(store: Store) {
    let work = store.db.transact("swallow", |tx| {
        Box::pin(async {
            add(tx, "a").await?;
            let _ = tx.execute("INSERT INTO things (id, count) VALUES ('b', NULL)", &[]).await;
            Ok(())
        })
    });
    assert!(matches!(work.await, Err(DatabaseError::Statement(_))));
    assert_eq!(count_things(&store.db).await, 0);
}

async fn a_statement_after_a_failed_one_fails_too(store: Store) {
    let work = store.db.transact("go on", |tx| {
        Box::pin(async {
            let first = tx.execute("INSERT INTO nowhere VALUES (1)", &[]).await;
            assert!(matches!(first, Err(DatabaseError::Statement(_))), "{first:?}");
            add(tx, "a").await
        })
    });
    assert!(matches!(work.await, Err(DatabaseError::Statement(_))));
    assert_eq!(count_things(&store.db).await, 0);
}

async fn values_come_back_as_they_went(store: Store) {
    let id = Uuid::new_v4();
    let bytes: Vec<u8> = (0..=255).collect();
    execute(
        &store.db,
        "INSERT INTO things (id, count, note, body) VALUES ($1, $2, $3, $4)",
        params![id, i64::MIN, "naïve 🎟 'quoted'", bytes.clone()],
    )
    .await
    .unwrap();
    execute(
        &store.db,
        "INSERT INTO things (id, count, note, body) VALUES ($1, $2, $3, $4)",
        params!["empty", true, None::<String>, None::<Vec<u8>>],
    )
    .await
    .unwrap();
    let rows = query(&store.db, "SELECT id, count, note, body FROM things ORDER BY count", params![]).await.unwrap();
    assert_eq!(rows[0].get::<Uuid>("id").unwrap(), id);
    assert_eq!(rows[0].get::<i64>("count").unwrap(), i64::MIN);
    assert_eq!(rows[0].get::<String>("note").unwrap(), "naïve 🎟 'quoted'");
    assert_eq!(rows[0].get::<Vec<u8>>("body").unwrap(), bytes);
    assert!(rows[1].get::<bool>("count").unwrap());
    assert_eq!(rows[1].get::<Option<String>>("note").unwrap(), None);
    assert_eq!(rows[1].get::<Option<Vec<u8>>>("body").unwrap(), None);
    assert!(matches!(rows[1].get::<String>("note"), Err(DatabaseError::Decode(_))));
}

async fn parameters_go_by_number(store: Store) {
    let rows = query(&store.db, "SELECT $2 || $1 || $2 AS text", params!["a", "b"]).await.unwrap();
    assert_eq!(rows[0].get::<String>("text").unwrap(), "bab");
    let error = query(&store.db, "SELECT $1 || $2 AS text", params!["a"]).await.unwrap_err();
    assert!(matches!(error, DatabaseError::Statement(_)), "{error:?}");
}

/// What the documentation says both engines understand.
async fn one_text_runs_on_both(store: Store) {
    for (id, count) in [("a", 1_i64), ("b", 2), ("c", 3)] {
        let upsert = "\
-- things.upsert
INSERT INTO things (id, count)
VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET count = things.count + EXCLUDED.count
RETURNING count";
        let run = |params: Vec<Value>| {
            store.db.transact("upsert", move |tx| {
                let params = params.clone();
                Box::pin(async move { tx.query_opt(upsert, &params).await?.unwrap().get::<i64>("count") })
            })
        };
        assert_eq!(run(params![id, count]).await.unwrap(), count);
        assert_eq!(run(params![id, count]).await.unwrap(), 2 * count);
    }
    assert_eq!(number(&store.db, "SELECT CAST(SUM(count) AS BIGINT) FROM things").await, 12);
    assert_eq!(
        number(&store.db, "SELECT COALESCE(CAST(SUM(count) AS BIGINT), 0) FROM parts JOIN things ON true").await,
        0
    );
    let page = query(&store.db, "SELECT id FROM things ORDER BY id LIMIT $1 OFFSET $2", params![1, 1]).await.unwrap();
    assert_eq!(page[0].get::<String>(0).unwrap(), "b");
    let none = "SELECT id FROM things WHERE note IS NOT DISTINCT FROM $1 ORDER BY id";
    assert_eq!(query(&store.db, none, params![None::<&str>]).await.unwrap().len(), 3);
    let case = "SELECT CASE WHEN EXISTS (SELECT 1 FROM things WHERE count > $1) THEN 1 ELSE 0 END AS many";
    assert!(query(&store.db, case, params![5]).await.unwrap()[0].get::<bool>("many").unwrap());
    let locked = store.db.transact("lock", |tx| {
        Box::pin(async {
            let one = tx.query("SELECT id FROM things WHERE id = $1 FOR UPDATE", &params!["a"]).await?;
            let rest = tx.query("SELECT id FROM things ORDER BY id FOR UPDATE SKIP LOCKED\n", &[]).await?;
            Ok::<_, DatabaseError>((one.len(), rest.len()))
        })
    });
    assert_eq!(locked.await.unwrap(), (1, 3));
    let purge = "\
WITH old AS (SELECT id FROM things WHERE count >= $1 ORDER BY count LIMIT $2)
DELETE FROM things WHERE id IN (SELECT id FROM old) AND count >= $1";
    assert_eq!(execute(&store.db, purge, params![4, 10]).await.unwrap(), 2);
}

async fn readers_cannot_write(store: Store) {
    let work = store.db.read("sneak", |tx| Box::pin(async { add(tx, "a").await }));
    assert!(matches!(work.await, Err::<u64, _>(error) if !matches!(error, DatabaseError::Decode(_))));
    assert_eq!(count_things(&store.db).await, 0);
}

async fn readers_see_one_snapshot(store: Store) {
    let db = store.db.clone();
    let seen = store.db.read("twice", move |tx| {
        let db = db.clone();
        Box::pin(async move {
            let before = tx.query("SELECT id FROM things", &[]).await?.len();
            let write = execute(&db, "INSERT INTO things (id, count) VALUES ('a', 1)", params![]);
            match &db {
                // Not even a test may wait inside SQLite's work, so the reader's thread is blocked instead.
                Database::Sqlite(_) => tokio::runtime::Handle::current().block_on(write)?,
                Database::Postgres(_) => write.await?,
            };
            Ok::<_, DatabaseError>((before, tx.query("SELECT id FROM things", &[]).await?.len()))
        })
    });
    assert_eq!(seen.await.unwrap(), (0, 0));
    assert_eq!(count_things(&store.db).await, 1);
}

async fn now_stands_still_within_a_transaction_and_is_moved_by_hand(store: Store) {
    let now = || {
        store.db.transact("now", |tx| {
            Box::pin(async {
                let first = tx.now();
                tx.query("SELECT 1 AS one", &[]).await?;
                assert_eq!(tx.now(), first);
                Ok::<_, DatabaseError>(first)
            })
        })
    };
    let wall = chassis::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    let before = now().await.unwrap();
    assert!((before - wall).abs() < 60_000_000, "{before} is about {wall}");
    store.hand.advance(Duration::from_secs(3600));
    let after = now().await.unwrap() - before;
    assert!((3_600_000_000..3_660_000_000).contains(&after), "{after}");
    let read = store.db.read("now", |tx| Box::pin(async { Ok::<_, DatabaseError>(tx.now()) })).await.unwrap();
    assert!(read >= before + 3_600_000_000);
}

async fn increments_are_not_lost(store: Store) {
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('a', 0)", params![]).await.unwrap();
    let increment = "UPDATE things SET count = count + 1 WHERE id = 'a'";
    let all = join_all((0..100).map(|_| execute(&store.db, increment, params![]))).await;
    assert!(all.into_iter().all(|touched| touched.unwrap() == 1));
    assert_eq!(number(&store.db, "SELECT count FROM things").await, 100);
}

async fn look_then_insert_inserts_once(store: Store) {
    let first = |n: i64| {
        store.db.transact("look then insert", move |tx| {
            Box::pin(async move {
                if let Some(row) = tx.query_opt("SELECT count FROM things WHERE id = 'a'", &[]).await? {
                    return row.get::<i64>("count");
                }
                tx.execute("INSERT INTO things (id, count) VALUES ('a', $1)", &params![n]).await?;
                Ok(n)
            })
        })
    };
    let winners: Vec<i64> = join_all((0..30).map(first)).await.into_iter().map(Result::unwrap).collect();
    assert!(winners.iter().all(|winner| *winner == winners[0]), "{winners:?}");
    assert_eq!(number(&store.db, "SELECT count FROM things").await, winners[0]);
}

async fn a_guard_in_the_update_never_oversells(store: Store) {
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('stock', 10)", params![]).await.unwrap();
    let buy = |n: i64| {
        store.db.transact("buy", move |tx| {
            Box::pin(async move {
                add(tx, &format!("order {n}")).await?;
                let guard = "UPDATE things SET count = count - 2 WHERE id = 'stock' AND count >= 2";
                if tx.execute(guard, &[]).await? == 1 { Ok(()) } else { Err(Refused::SoldOut) }
            })
        })
    };
    let answers = join_all((0..200).map(buy)).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(Refused::SoldOut))).count(), 195);
    assert_eq!(count_things(&store.db).await, 6);
}

async fn a_panic_rolls_back_and_the_store_goes_on(store: Store) {
    let work = store.db.transact("panic", |tx| {
        Box::pin(async {
            add(tx, "a").await?;
            if tx.now() > 0 {
                panic!("on purpose");
            }
            Ok::<_, DatabaseError>(())
        })
    });
    let panic = std::panic::AssertUnwindSafe(work).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(count_things(&store.db).await, 0);
    store.db.transact("add", |tx| Box::pin(async { add(tx, "a").await })).await.unwrap();
}

async fn several_rows_are_not_one(store: Store) {
    let work = store.db.transact("two", |tx| {
        Box::pin(async { tx.query_opt("SELECT 1 AS n UNION ALL SELECT 2 AS n", &[]).await.map(drop) })
    });
    assert!(matches!(work.await, Err(DatabaseError::Decode(_))));
}

async fn a_bug_is_not_transient(store: Store) {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let work = store.db.transact("bug", move |tx| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { tx.query("SELEKT 1", &[]).await })
    });
    let error = work.await.unwrap_err();
    assert!(matches!(error, DatabaseError::Statement(_)) && !error.is_transient(), "{error:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn ping_answers(store: Store) {
    store.db.ping().await.unwrap();
}

/// Callers go away at every point of a transaction; what they leave behind must not harm the next.
async fn dropped_futures_leave_nothing_open(store: Store) {
    for n in 0..1000_u32 {
        let work = store.db.transact("dropped", move |tx| {
            Box::pin(async move {
                add(tx, &format!("dropped {n}")).await?;
                tx.query("SELECT id FROM things WHERE count = 7", &[]).await?;
                Err::<(), _>(Refused::SoldOut)
            })
        });
        // Poll it a few times, a different number in each round, and drop it wherever it is.
        let mut work = std::pin::pin!(work);
        for _ in 0..n % 7 {
            if poll_immediate(work.as_mut()).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
            if n % 3 == 0 {
                let _ = tokio::time::timeout(Duration::from_micros(u64::from(n)), std::future::pending::<()>()).await;
            }
        }
    }
    store.db.transact("add", |tx| Box::pin(async { add(tx, "kept").await })).await.unwrap();
    assert_eq!(count_things(&store.db).await, 1, "every dropped transaction would have rolled back");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_futures_leave_nothing_open_on_sqlite() {
    dropped_futures_leave_nothing_open(Store::over(sqlite_url(), Options::default()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_futures_leave_nothing_open_on_a_postgres_pool_of_one() {
    let options = Options { pool_size: 1, ..Options::default() };
    dropped_futures_leave_nothing_open(Store::over(postgres_url("dropped").await, options).await).await;
}

/// Transfers that are dropped at any moment are whole or not there, and none is left open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dropped_transfers_are_whole_or_not_there_on_a_postgres_pool_of_one() {
    let seed = std::env::var("IDEM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("IDEM_TEST_SEED={seed}");
    let mut state = seed;
    let mut below = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let options = Options { pool_size: 1, ..Options::default() };
    let store = Store::over(postgres_url("transfers").await, options).await;
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('from', 1000), ('to', 0)", params![]).await.unwrap();
    let some = (0..1000_u32).map(|n| (n, below(30), below(3000))).collect::<Vec<_>>();
    for some in some.chunks(8) {
        let dropped = some.iter().map(|(n, polls, micros)| {
            let n = *n;
            let work = store.db.transact("transfer", move |tx| {
                Box::pin(async move {
                    tx.execute("UPDATE things SET count = count - 1 WHERE id = 'from'", &[]).await?;
                    add(tx, &format!("receipt {n}")).await?;
                    tx.execute("UPDATE things SET count = count + 1 WHERE id = 'to'", &[]).await
                })
            });
            async move {
                let moment = async {
                    for _ in 0..*polls {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::sleep(Duration::from_micros(*micros)).await;
                };
                tokio::select! {
                    biased;
                    () = moment => {}
                    done = work => drop(done.unwrap()),
                }
            }
        });
        futures::future::join_all(dropped).await;
    }
    let count = |sql: &'static str| tokio::time::timeout(Duration::from_secs(2), number(&store.db, sql));
    let received = count("SELECT count FROM things WHERE id = 'to'").await.expect("the next one is served in time");
    assert_eq!(count("SELECT COUNT(*) FROM things WHERE id LIKE 'receipt %'").await.unwrap(), received);
    assert_eq!(count("SELECT count FROM things WHERE id = 'from'").await.unwrap(), 1000 - received);
    println!("{received} transfers landed");
    assert!((1..1000).contains(&received), "some landed and some did not: {received}");
    let open = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND state LIKE 'idle in transaction%'";
    assert_eq!(count(open).await.unwrap(), 0);
}
