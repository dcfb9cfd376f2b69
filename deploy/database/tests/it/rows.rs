//! Many rows in one statement, over both engines.

use database::{DatabaseError, Row, Value, params};

use crate::store::{Store, count_things, query};

on_both! {
    five_hundred_rows_go_in_and_come_back_as_they_went
    no_rows_are_no_statement
    an_upsert_answers_the_rows_it_let_through
    an_update_touches_the_rows_it_names_and_no_others
    rows_are_found_by_a_list_and_locked
    one_bad_row_fails_them_all
    rows_of_different_columns_are_refused
}

const INSERT: &str = "INSERT INTO things (id, count, note, body) {rows}";

async fn execute_rows(
    store: &Store,
    sql: &'static str,
    params: Vec<Value>,
    rows: Vec<Vec<Value>>,
) -> Result<u64, DatabaseError> {
    let work = store.db.transact("execute rows", move |tx| {
        let (params, rows) = (params.clone(), rows.clone());
        Box::pin(async move { tx.execute_rows(sql, &params, &rows).await })
    });
    work.await
}

async fn query_rows(store: &Store, sql: &'static str, params: Vec<Value>, rows: Vec<Vec<Value>>) -> Vec<Row> {
    let work = store.db.transact("query rows", move |tx| {
        let (params, rows) = (params.clone(), rows.clone());
        Box::pin(async move { tx.query_rows(sql, &params, &rows).await })
    });
    work.await.unwrap()
}

/// Things of these names, each counted by its place from 0.
async fn put(store: &Store, ids: &[&str]) {
    let rows = ids.iter().zip(0_i64..).map(|(id, count)| params![*id, count, None::<&str>, None::<&[u8]>]).collect();
    assert_eq!(execute_rows(store, INSERT, params![], rows).await.unwrap(), ids.len() as u64);
}

fn ids(rows: &[Row]) -> Vec<String> {
    let mut ids: Vec<String> = rows.iter().map(|row| row.get("id").unwrap()).collect();
    ids.sort();
    ids
}

async fn counts(store: &Store) -> Vec<i64> {
    let rows = query(&store.db, "SELECT count FROM things ORDER BY id", params![]).await.unwrap();
    rows.iter().map(|row| row.get("count").unwrap()).collect()
}

async fn five_hundred_rows_go_in_and_come_back_as_they_went(store: Store) {
    let note = |at: i64| (at % 3 != 0).then(|| format!("naïve, {{\"quoted\"}}, NULL 🎟 {at}"));
    let body = |at: i64| (at % 2 == 0).then(|| vec![at as u8; (at % 7) as usize]);
    let rows: Vec<_> = (0..500).map(|at| params![format!("{at:03}"), -at, note(at), body(at)]).collect();
    assert_eq!(execute_rows(&store, INSERT, params![], rows).await.unwrap(), 500);
    let rows = query(&store.db, "SELECT count, note, body FROM things ORDER BY id", params![]).await.unwrap();
    assert_eq!(rows.len(), 500);
    for (row, at) in rows.iter().zip(0..) {
        assert_eq!(row.get::<i64>("count").unwrap(), -at);
        assert_eq!(row.get::<Option<String>>("note").unwrap(), note(at));
        assert_eq!(row.get::<Option<Vec<u8>>>("body").unwrap(), body(at));
    }
}

async fn no_rows_are_no_statement(store: Store) {
    assert_eq!(execute_rows(&store, "not even SQL {rows}", params![], vec![]).await.unwrap(), 0);
    assert!(query_rows(&store, "not even SQL {rows}", params![], vec![]).await.is_empty());
}

async fn an_upsert_answers_the_rows_it_let_through(store: Store) {
    put(&store, &["a", "b", "c"]).await;
    let upsert = "\
-- things.raise
INSERT INTO things (id, count) {rows}
    ON CONFLICT (id) DO UPDATE
   SET count = excluded.count
 WHERE things.count < excluded.count
RETURNING id, count";
    let rows = vec![params!["a", 7], params!["b", 1], params!["d", 9], params!["c", 8]];
    let through = query_rows(&store, upsert, params![], rows).await;
    assert_eq!(ids(&through), ["a", "c", "d"], "b has counted as far");
    assert_eq!(counts(&store).await, [7, 1, 8, 9]);
}

async fn an_update_touches_the_rows_it_names_and_no_others(store: Store) {
    put(&store, &["a", "b", "c"]).await;
    let update = "\
-- things.add
  WITH added (id, count) AS ({rows})
UPDATE things
   SET count = things.count + added.count, note = $1
  FROM added
 WHERE things.id = added.id
   AND things.count >= $2";
    let rows = vec![params!["a", 10], params!["c", 20], params!["nobody", 30]];
    let touched = execute_rows(&store, update, params!["added", 1], rows).await;
    assert_eq!(touched.unwrap(), 1, "a is guarded, and there is no such thing as nobody");
    assert_eq!(counts(&store).await, [0, 1, 22]);
}

async fn rows_are_found_by_a_list_and_locked(store: Store) {
    put(&store, &["a", "b", "c"]).await;
    let select = "SELECT id FROM things WHERE id IN ({rows}) AND count > $1 ORDER BY id FOR UPDATE";
    let found = query_rows(&store, select, params![0], vec![params!["c"], params!["a"], params!["b"]]).await;
    assert_eq!(ids(&found), ["b", "c"]);
}

async fn one_bad_row_fails_them_all(store: Store) {
    put(&store, &["b"]).await;
    let row = |id: &str| params![id, 1, None::<&str>, None::<&[u8]>];
    let failed = execute_rows(&store, INSERT, params![], vec![row("a"), row("b"), row("c")]).await;
    assert!(matches!(failed, Err(DatabaseError::Statement(_))), "{failed:?}");
    assert_eq!(count_things(&store.db).await, 1);
}

async fn rows_of_different_columns_are_refused(store: Store) {
    let rows = vec![params!["a", 1], params![2, "b"]];
    let failed = execute_rows(&store, "INSERT INTO things (id, count) {rows}", params![], rows).await;
    assert!(matches!(failed, Err(DatabaseError::Statement(_))), "{failed:?}");
}
