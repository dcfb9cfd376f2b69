//! Whether a large table costs more than a small one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{
    loaded::{Loaded, name},
    orders::ratio,
    reserving::{Naming, pairs, replays},
};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Side, alternate},
    say,
    stage::{program::Program, system::start_idem},
};

const SMALL: u64 = 10_000;
/// A day.
const LIVE: Duration = Duration::from_secs(24 * 3600);
const BODY_BYTES: usize = 200;

/// Fresh pairs and replays, on ten thousand keys and on millions.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let large = bench.settings.keys();
    // Without the cache of answers, in which ten thousand fit and would never reach the table.
    let (_small_service, on_small) = start(bench, "table_small", SMALL).await?;
    let (_large_service, on_large) = start(bench, "table_large", large).await?;
    let (this, spread) = (&*bench, large / SMALL);
    let small_names: Naming = Arc::new(|session, number| Some(name(nth(session, number))));
    let large_names: Naming = Arc::new(move |session, number| Some(name(nth(session, number) * spread)));
    let (small_names, large_names) = (&small_names, &large_names);
    let sides = vec![
        Side::new(format!("pairs among {large} keys"), move |_| pairs(this, on_large, this.plan())),
        Side::new(format!("pairs among {SMALL} keys"), move |_| pairs(this, on_small, this.plan())),
        Side::new(format!("replays among {large} keys"), move |_| {
            replays(this, on_large, this.plan(), large_names.clone())
        }),
        Side::new(format!("replays among {SMALL} keys"), move |_| {
            replays(this, on_small, this.plan(), small_names.clone())
        }),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    for database in ["table_small", "table_large"] {
        bench.postgres().remove(database).await?;
    }
    let millions = large as f64 / 1e6;
    let bars = vec![
        Bar::times(
            format!("fresh pairs, {millions} million keys against 10 thousand"),
            ratio(&sides[0], &sides[1]),
            0.85,
        ),
        Bar::times(format!("replays, {millions} million keys against 10 thousand"), ratio(&sides[2], &sides[3]), 0.9),
    ];
    Ok(Report::new("table-size", bars, sides))
}

async fn start(bench: &mut Bench, database: &'static str, count: u64) -> anyhow::Result<(Program, SocketAddr)> {
    let store = bench.postgres().create(database).await?;
    let flags = ["--replay-cache-mib", "0"].map(str::to_owned);
    let started = start_idem(&mut bench.stage, database, &store, &flags).await?;
    say::progress(&format!("loading {count} keys"));
    let loaded = Loaded { count, body_bytes: BODY_BYTES, live: Some(LIVE) };
    loaded.into(bench.postgres(), database).await?;
    Ok(started)
}

/// Hops over the ten thousand so that each is as likely as another, and none comes twice in a row.
fn nth(session: usize, number: u64) -> u64 {
    (session as u64 * 157 + number * 6_151) % SMALL
}
