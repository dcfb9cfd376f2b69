//! What only SQLite promises: the file, the lock, the writer.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};

use database::testing::sqlite_url;
use database::{Clock, Database, DatabaseError, OpenError, Options, Sqlite, StoreUrl, params};
use futures::FutureExt;
use futures::future::join_all;

use crate::store::{SCHEMA, Store, add, count_things, execute, number, open};

async fn try_open(url: &StoreUrl) -> Result<Database, OpenError> {
    Database::open(url, &SCHEMA, Clock::system(), Options::default()).await
}

fn sqlite(db: &Database) -> &Sqlite {
    match db {
        Database::Sqlite(sqlite) => sqlite,
        Database::Postgres(_) => panic!("not SQLite"),
    }
}

fn path(url: &StoreUrl) -> &std::path::Path {
    match url {
        StoreUrl::Sqlite(path) => path,
        StoreUrl::Postgres(_) => panic!("not SQLite"),
    }
}

/// Occupies the writer until the sender goes, so that what is queued meanwhile shares one commit.
async fn occupied(db: &Database) -> (mpsc::Sender<()>, impl Future<Output = ()>) {
    let (release, released) = mpsc::channel::<()>();
    let (entered, is_in) = tokio::sync::oneshot::channel();
    let sqlite = sqlite(db).clone();
    let mut running = Box::pin(async move {
        let block = sqlite.write(move |_| {
            let _ = entered.send(());
            let _ = released.recv();
            Ok::<_, DatabaseError>(())
        });
        block.await.unwrap();
    });
    // The job is handed over by the first poll.
    assert!((&mut running).now_or_never().is_none());
    is_in.await.unwrap();
    (release, running)
}

// === the file ===

#[cfg(unix)]
#[tokio::test]
async fn files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = sqlite_url();
    let inside = path(&scratch).with_file_name("fresh").join("store.db");
    let db = open(&StoreUrl::Sqlite(inside.clone())).await;
    execute(&db, "INSERT INTO things (id, count) VALUES ('a', 1)", params![]).await.unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(inside.parent().unwrap()), 0o700);
    let mut seen = 0;
    for entry in inside.parent().unwrap().read_dir().unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
        seen += 1;
    }
    assert_eq!(seen, 4, "the file, its log, the log's index, the lock");
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_in_one_sentence() {
    let scratch = sqlite_url();
    let two_levels = path(&scratch).with_file_name("no").join("such").join("store.db");
    let error = try_open(&StoreUrl::Sqlite(two_levels)).await.unwrap_err().to_string();
    assert!(error.contains("its directory") && error.contains("cannot be created"), "{error}");
    let garbage = path(&scratch).with_file_name("garbage.db");
    std::fs::write(&garbage, "this is not a database, whatever its name says, and it is long enough").unwrap();
    let error = try_open(&StoreUrl::Sqlite(garbage)).await.unwrap_err().to_string();
    assert!(error.contains("garbage.db cannot be opened: ") && error.contains("not a database"), "{error}");
    assert!(!error.contains('\n'));
}

#[tokio::test]
async fn commits_are_durable_and_foreign_keys_hold() {
    let store = Store::sqlite().await;
    let pragma = |name: &'static str| {
        sqlite(&store.db).write(move |conn| {
            Ok::<String, DatabaseError>(conn.query_row(&format!("PRAGMA {name}"), [], |row| {
                row.get::<_, rusqlite::types::Value>(0).map(|value| format!("{value:?}"))
            })?)
        })
    };
    assert_eq!(pragma("journal_mode").await.unwrap(), "Text(\"wal\")");
    assert_eq!(pragma("synchronous").await.unwrap(), "Integer(2)");
    let orphan = execute(&store.db, "INSERT INTO parts (id, thing) VALUES ('p', 'nothing')", params![]).await;
    assert!(matches!(orphan, Err(DatabaseError::Statement(_))), "{orphan:?}");
}

// === the lock ===

#[tokio::test]
async fn a_second_opening_is_refused_also_through_a_link() {
    let scratch = sqlite_url();
    let db = open(&scratch).await;
    let link = path(&scratch).with_file_name("link.db");
    #[cfg(unix)]
    std::os::unix::fs::symlink(path(&scratch), &link).unwrap();
    tokio::time::pause();
    for url in [scratch.url().clone(), StoreUrl::Sqlite(link)] {
        let error = try_open(&url).await.unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("in use by another process"), "{error}");
    }
    tokio::time::resume();
    drop(db);
    open(&scratch).await;
}

/// Set in the child process of the tests below: the file it is to hold.
const HOLD: &str = "DATABASE_TEST_HOLD";

/// Not a test by itself: the body of the child process.
#[tokio::test]
async fn child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(HOLD) else { return };
    let db = open(&StoreUrl::Sqlite(path.into())).await;
    for n in 0.. {
        execute(&db, "INSERT INTO things (id, count) VALUES ($1, $2)", params![n.to_string(), n]).await.unwrap();
        println!("acknowledged {n}");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child_that_writes(path: &std::path::Path) -> Killed {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::child_writes_until_it_is_killed", "--nocapture"])
        .env(HOLD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    Killed(child.unwrap())
}

#[tokio::test]
async fn another_process_keeps_us_out_and_kill_9_lets_us_in_with_all_that_was_acknowledged() {
    let scratch = sqlite_url();
    let mut child = child_that_writes(path(&scratch));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_last = |line: &String| line.contains("acknowledged 25");
    assert!(lines.by_ref().any(|line| is_last(&line)), "the child writes");

    let error = try_open(&scratch).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");

    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let last = lines.filter_map(|line| line.split("acknowledged ").nth(1)?.parse::<i64>().ok()).last().unwrap_or(25);
    let db = open(&scratch).await;
    let kept = number(&db, "SELECT MAX(count) FROM things").await;
    assert!(kept >= last, "acknowledged {last}, kept {kept}");
    assert_eq!(count_things(&db).await, kept + 1, "no gap");
}

// === the writer ===

#[tokio::test]
async fn what_waits_shares_a_commit_and_one_failure_undoes_only_itself() {
    let store = Store::sqlite().await;
    let (release, running) = occupied(&store.db).await;
    let jobs = (0..50).map(|n| {
        store.db.transact("add", move |tx| {
            Box::pin(async move {
                add(tx, &format!("thing {n}")).await?;
                if n % 5 == 0 { Err(DatabaseError::Conflict) } else { Ok(()) }
            })
        })
    });
    // Released when all of them wait.
    let (answers, (), ()) = futures::join!(join_all(jobs), async { drop(release) }, running);
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 10);
    assert_eq!(count_things(&store.db).await, 40);
}

#[tokio::test]
async fn a_failed_commit_fails_everybody_who_shared_it() {
    let store = Store::sqlite().await;
    let (release, running) = occupied(&store.db).await;
    let good = store.db.transact("good", |tx| Box::pin(async { add(tx, "good").await }));
    // Found out at the commit only.
    let bad = sqlite(&store.db).write(|conn| {
        conn.execute_batch("PRAGMA defer_foreign_keys = ON; INSERT INTO parts (id, thing) VALUES ('p', 'nothing')")?;
        Ok::<_, DatabaseError>(())
    });
    // Its own refusal may rest on what the group wrote, so it is no answer either.
    let refused = sqlite(&store.db).write(|_| Err::<(), _>(DatabaseError::Conflict));
    // Released when all of them wait.
    let (good, bad, refused, (), ()) = futures::join!(good, bad, refused, async { drop(release) }, running);
    assert!(matches!(good, Err(DatabaseError::Statement(_))), "{good:?}");
    assert!(matches!(bad, Err(DatabaseError::Statement(_))), "{bad:?}");
    assert!(matches!(refused, Err(DatabaseError::Statement(_))), "{refused:?}");
    store.db.transact("good", |tx| Box::pin(async { add(tx, "good").await })).await.unwrap();
    assert_eq!(count_things(&store.db).await, 1);
}

#[tokio::test]
async fn when_the_engine_rolls_back_the_group_is_told_and_the_rest_goes_on() {
    let store = Store::sqlite().await;
    let (release, running) = occupied(&store.db).await;
    let before = store.db.transact("before", |tx| Box::pin(async { add(tx, "before").await }));
    let rollback = sqlite(&store.db).write(|conn| {
        conn.execute_batch("ROLLBACK")?;
        Ok::<_, DatabaseError>(())
    });
    let after = store.db.transact("after", |tx| Box::pin(async { add(tx, "after").await }));
    // Released when all of them wait.
    let (before, rollback, after, (), ()) = futures::join!(before, rollback, after, async { drop(release) }, running);
    assert!(matches!(before, Err(DatabaseError::Unavailable(_))), "{before:?}");
    assert!(matches!(rollback, Err(DatabaseError::Unavailable(_))), "{rollback:?}");
    assert_eq!(after.unwrap(), 1);
    assert_eq!(count_things(&store.db).await, 1);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_the_service_goes_on_when_there_is_space_again() {
    let store = Store::sqlite().await;
    let limit = |pages: u32| {
        sqlite(&store.db).write(move |conn| {
            let _: u32 = conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get(0))?;
            Ok::<_, DatabaseError>(())
        })
    };
    let write = || {
        execute(
            &store.db,
            "INSERT INTO things (id, count, body) VALUES ($1, 0, $2)",
            params![uuid::Uuid::new_v4(), vec![0_u8; 100_000]],
        )
    };
    limit(50).await.unwrap();
    let error = loop {
        if let Err(error) = write().await {
            break error;
        }
    };
    assert!(matches!(error, DatabaseError::Unavailable(_)), "{error:?}");
    let kept = count_things(&store.db).await;
    assert!(write().await.unwrap_err().is_transient());
    limit(1_000_000).await.unwrap();
    write().await.unwrap();
    assert_eq!(count_things(&store.db).await, kept + 1);
}

#[tokio::test]
async fn work_that_waits_for_something_else_panics_and_the_writer_goes_on() {
    let store = Store::sqlite().await;
    let waiting = store.db.transact("waits", |tx| {
        Box::pin(async {
            add(tx, "a").await?;
            std::future::pending::<()>().await;
            Ok::<_, DatabaseError>(())
        })
    });
    let panic = std::panic::AssertUnwindSafe(waiting).catch_unwind().await.unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("`waits` waits for something other"));
    assert_eq!(count_things(&store.db).await, 0);
    execute(&store.db, "INSERT INTO things (id, count) VALUES ('b', 1)", params![]).await.unwrap();
}

#[tokio::test]
async fn readers_do_not_wait_for_the_writer() {
    let store = Store::sqlite().await;
    let (release, running) = occupied(&store.db).await;
    assert_eq!(count_things(&store.db).await, 0);
    store.db.ping().await.unwrap();
    drop(release);
    running.await;
}

#[tokio::test]
async fn a_caller_that_has_gone_starts_no_work() {
    let store = Store::sqlite().await;
    let (release, running) = occupied(&store.db).await;
    let ran = Arc::new(());
    let witness = ran.clone();
    let mut queued = Box::pin(sqlite(&store.db).write(move |conn| {
        let _witness = witness;
        conn.execute("INSERT INTO things (id, count) VALUES ('late', 1)", [])?;
        Ok::<_, DatabaseError>(())
    }));
    assert!((&mut queued).now_or_never().is_none());
    drop(queued);
    drop(release);
    running.await;
    store.db.transact("add", |tx| Box::pin(async { add(tx, "next").await })).await.unwrap();
    assert_eq!(count_things(&store.db).await, 1);
    assert_eq!(Arc::strong_count(&ran), 1);
}
