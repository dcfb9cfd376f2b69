//! What only SQLite can show.

use database::{Clock, OpenError, StoreUrl};
use idem_service::Sealing;
use idem_service::store;
use rusqlite::Connection;

use super::bench::*;

fn path(bench: &Bench) -> &std::path::Path {
    match bench.url() {
        Some(StoreUrl::Sqlite(path)) => path,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reopened_file_has_kept_everything() {
    let bench = Bench::sqlite().await;
    let (held, completed, released) = (key("held"), key("completed"), key("released"));
    let mut before = vec![bench.reserve(&held, 1).await];
    bench.reserve(&completed, 2).await;
    before.push(bench.step(&completed, |r| completing(r, answer(vec![0xff, 0x00]))).await);
    bench.reserve(&released, 3).await;
    before.push(bench.step(&released, releasing).await);

    let Bench { store, .. } = &bench;
    let url = bench.url().unwrap().clone();
    let held_elsewhere = store::open(&url, Clock::system(), Default::default(), Sealing::off()).await.err();
    assert!(matches!(held_elsewhere, Some(OpenError::InUse { .. })), "{held_elsewhere:?}");
    let store = std::sync::Arc::downgrade(store);
    let scratch = bench.close();
    assert!(store.upgrade().is_none());

    let reopened = store::open(scratch.url(), Clock::system(), Default::default(), Sealing::off()).await.unwrap();
    let after = reopened.load(&[held, completed, released]).await.unwrap();
    before.iter().zip(&after).for_each(|(before, after)| assert_same(before, after));
}

#[tokio::test]
async fn the_tables_refuse_what_no_command_leaves_behind() {
    let bench = Bench::sqlite().await;
    bench.reserve(&key("held"), 1).await;
    bench.reserve(&key("completed"), 2).await;
    bench.step(&key("completed"), |r| completing(r, answer("x"))).await;
    let connection = Connection::open(path(&bench)).unwrap();
    for mistake in MISTAKES {
        let refused = connection.execute_batch(mistake).unwrap_err();
        assert!(refused.to_string().contains("CHECK constraint failed"), "{mistake}: {refused}");
    }
}
