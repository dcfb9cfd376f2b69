//! Answers that are encrypted at rest: what the tables show, and what a row is worth elsewhere.

use idem_core::{Response, State};
use idem_service::Sealing;
use idem_service::store::{Filter, KeyId, Snapshot, StoreError};

use super::bench::*;

const BODY: &str = r#"{"id":"7b0a4d1e","total":"planted-total"}"#;

fn response() -> Response {
    let headers = vec![("location".to_owned(), "/v1/orders/planted-location".to_owned())];
    Response::new(201, headers, BODY.into(), "planted-resource".into()).unwrap()
}

async fn complete(bench: &Bench, key: &KeyId, n: u128) {
    bench.reserve(key, n).await;
    bench.step(key, |r| completing(r, response())).await;
}

fn answer_of(snapshot: &Snapshot) -> &Response {
    match &snapshot.record.as_ref().unwrap().state {
        State::Completed(response) => response,
        other => panic!("{other:?}"),
    }
}

/// The same place with other keys.
async fn reopen(bench: Bench, sealing: Sealing) -> Bench {
    Bench::at(bench.close(), sealing).await
}

async fn why(bench: &Bench, key: &KeyId) -> String {
    match bench.store.load(std::slice::from_ref(key)).await.unwrap_err() {
        StoreError::Broken(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Runs SQL behind the store's back, on either engine.
async fn execute(bench: &Bench, sql: &str) {
    match bench.url() {
        Some(database::StoreUrl::Sqlite(path)) => {
            rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
        }
        _ => bench.postgres_client().await.batch_execute(sql).await.unwrap(),
    }
}

/// Every column of every row as text.
async fn dump(bench: &Bench) -> String {
    match bench.url() {
        Some(database::StoreUrl::Sqlite(path)) => {
            let connection = rusqlite::Connection::open(path).unwrap();
            let mut statement = connection.prepare("SELECT * FROM idem_keys").unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            let mut text = String::new();
            while let Some(row) = rows.next().unwrap() {
                for column in 0..columns {
                    let value = match row.get_ref(column).unwrap() {
                        rusqlite::types::ValueRef::Text(bytes) | rusqlite::types::ValueRef::Blob(bytes) => {
                            String::from_utf8_lossy(bytes).into_owned()
                        }
                        other => format!("{other:?}"),
                    };
                    text += &format!("{value}|");
                }
            }
            text
        }
        _ => {
            let sql = "SELECT k::text || '|' || convert_from(decode(replace(encode(COALESCE(response_body, ''), 'hex'), '00', '20'), 'hex'), 'LATIN1') AS row FROM idem_keys AS k";
            let rows = bench.postgres_client().await.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get::<_, String>("row")).collect()
        }
    }
}

async fn tables_show_no_answer_and_the_key_that_sealed_it(bench: Bench) {
    let plain = reopen(bench, Sealing::off()).await;
    complete(&plain, &key("plain"), 1).await;
    let shown = dump(&plain).await;
    assert!(
        ["planted-total", "planted-location", "planted-resource"].iter().all(|text| shown.contains(text)),
        "{shown}"
    );
    execute(&plain, "DELETE FROM idem_keys").await;

    let sealed = reopen(plain, sealing(&[("2026-11", 1)])).await;
    complete(&sealed, &key("sealed"), 2).await;
    let shown = dump(&sealed).await;
    assert!(shown.contains("2026-11") && !shown.contains("planted"), "{shown}");
    assert_eq!(answer_of(&sealed.load(&key("sealed")).await), &response());
}

async fn rotation_keeps_every_answer_and_a_missing_key_loses_none(bench: Bench) {
    let [plain, old, new] = ["plain", "old", "new"].map(key);
    let bench = reopen(bench, Sealing::off()).await;
    complete(&bench, &plain, 1).await;
    let bench = reopen(bench, sealing(&[("k1", 1)])).await;
    complete(&bench, &old, 2).await;
    let bench = reopen(bench, sealing(&[("k2", 2), ("k1", 1)])).await;
    complete(&bench, &new, 3).await;
    for key in [&plain, &old, &new] {
        assert_eq!(answer_of(&bench.load(key).await), &response(), "{key:?}");
    }

    let bench = reopen(bench, sealing(&[("k2", 2)])).await.batching();
    assert!(why(&bench, &old).await.contains("`k1`"), "{}", why(&bench, &old).await);
    // Whoever waits beside it is not disturbed, and a listing shows what it can.
    let both = [new.clone(), old.clone()];
    assert!(bench.store.load(&both).await.is_err());
    assert_eq!(answer_of(&bench.load(&new).await), &response());
    let every = Filter { scopes: every_scope(), ..Filter::default() };
    let listed = bench.store.list(&every, None, 10).await.unwrap();
    let ids: Vec<String> = listed.iter().map(|entry| answer_of(&entry.snapshot).resource_id().to_owned()).collect();
    assert_eq!(ids, ["planted-resource", "", "planted-resource"]);

    let bench = reopen(bench, sealing(&[("k2", 2), ("k1", 1)])).await;
    assert_eq!(answer_of(&bench.load(&old).await), &response());
}

async fn a_row_is_worth_nothing_under_another_key(bench: Bench) {
    let bench = reopen(bench, sealing(&[("k1", 1)])).await;
    let (mine, theirs) = (key_in("rest/a", "k"), key_in("rest/b", "k"));
    complete(&bench, &mine, 1).await;
    complete(&bench, &theirs, 2).await;
    // Somebody who may write to the database gives one tenant the answer of the other.
    execute(
        &bench,
        "UPDATE idem_keys
            SET response_headers = (SELECT response_headers FROM idem_keys WHERE scope = 'rest/b'),
                response_body = (SELECT response_body FROM idem_keys WHERE scope = 'rest/b')
          WHERE scope = 'rest/a'",
    )
    .await;
    assert!(why(&bench, &mine).await.contains("does not decrypt"));
    assert_eq!(answer_of(&bench.load(&theirs).await), &response());
    // With the other one's operation id it is still under another key.
    execute(
        &bench,
        "UPDATE idem_keys SET operation_id = (SELECT operation_id FROM idem_keys WHERE scope = 'rest/b') WHERE scope = 'rest/a'",
    )
    .await;
    assert!(why(&bench, &mine).await.contains("does not decrypt"));
    execute(&bench, "UPDATE idem_keys SET response_status = 200 WHERE scope = 'rest/b'").await;
    assert!(why(&bench, &theirs).await.contains("does not decrypt"));
}

macro_rules! on_both {
    ($($case:ident),+) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(super::Bench::sqlite().await).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(super::Bench::postgres().await).await;
                }
            )+
        }
    };
}

on_both!(
    tables_show_no_answer_and_the_key_that_sealed_it,
    rotation_keeps_every_answer_and_a_missing_key_loses_none,
    a_row_is_worth_nothing_under_another_key
);
