//! Many days in a few seconds: what is over is deleted, and the table stays as large as one retention makes it.

use std::time::Duration;

use database::StoreUrl;
use idem_core::decide;
use idem_service::store::{Counts, KeyId, SwapRequest, Version};

use super::bench::*;

const PERIODS: usize = 24;
const KEYS: usize = 100;
/// The periods after which the table has its size.
const WARM_UP: usize = 5;

/// Pages in use, by the engine's own count. Free pages of a SQLite file count too: they are its size on disk.
async fn pages(bench: &Bench) -> Option<i64> {
    match bench.url()? {
        StoreUrl::Sqlite(path) => {
            let connection = rusqlite::Connection::open(path).unwrap();
            Some(connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap())
        }
        StoreUrl::Postgres(_) => {
            let client = bench.postgres_client().await;
            vacuum(&client).await;
            let size = "SELECT pg_table_size('idem_keys') / 8192";
            Some(client.query_one(size, &[]).await.unwrap().get(0))
        }
    }
}

/// What autovacuum does meanwhile; a day of the test is too short for it. Whoever has a snapshot at this moment, as
/// autovacuum has in any table of the database, keeps dead rows from it: so again, until there are none. The pages stay,
/// because the highest size is what is looked for, and because giving them back is a thing that VACUUM only tries.
async fn vacuum(client: &tokio_postgres::Client) {
    let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'idem_keys'";
    let cleaned = async {
        loop {
            client.batch_execute("VACUUM (TRUNCATE false) idem_keys").await.unwrap();
            if client.query_one(dead, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), cleaned).await.expect("somebody keeps dead rows from VACUUM");
}

async fn write(bench: &Bench, keys: &[KeyId], step: impl Fn(usize, Option<&idem_core::Record>) -> idem_core::Command) {
    let seen = bench.store.load(keys).await.unwrap();
    let writes = keys.iter().zip(&seen).enumerate().map(|(n, (key, seen))| {
        let version = if seen.record.is_some() { seen.version } else { Version::Absent };
        let put = put(decide(seen.record.as_ref(), step(n, seen.record.as_ref())));
        SwapRequest { key: key.clone(), seen: version, put, audit: None, until: None }
    });
    bench.store.swap(writes.collect()).await.unwrap();
}

pub async fn the_table_does_not_grow_over_many_retentions(bench: &Bench) {
    let body = vec![b'x'; 512];
    let (mut largest, mut settled) = (0, 0);
    for period in 0..PERIODS {
        let keys: Vec<KeyId> = (0..KEYS).map(|n| key(&format!("{period}/{n}"))).collect();
        write(bench, &keys, |n, _| reserving((period * KEYS + n) as u128 + 1)).await;
        write(bench, &keys, |n, record| {
            let record = record.expect("it was just reserved");
            if n % 3 == 0 { releasing(record) } else { completing(record, answer(body.clone())) }
        })
        .await;
        // One key a period, again and again: a new generation takes the old one's place.
        let again = [key("again")];
        write(bench, &again, |_, _| reserving(period as u128 + 1_000_000)).await;
        write(bench, &again, |_, record| completing(record.expect("reserved"), answer(body.clone()))).await;

        bench.hand.advance(RETENTION);
        while bench.store.purge(1_000).await.unwrap() == 1_000 {}
        let counts = bench.store.count(&every_scope()).await.unwrap();
        assert_eq!(counts, Counts::default(), "period {period}: everything was over");
        let Some(pages) = pages(bench).await else { continue };
        if period < WARM_UP { settled = settled.max(pages) } else { largest = largest.max(pages) }
    }
    // Memory has no pages; that it kept nothing was seen in every period.
    assert!(largest * 10 <= settled * 11, "{settled} pages after {WARM_UP} retentions, then up to {largest}");
}
