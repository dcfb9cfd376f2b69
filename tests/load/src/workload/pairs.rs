//! Reserve and Complete over gRPC, every key fresh.

use super::{baselines::looped, orders::ratio, reserving::pairs as reserve_and_complete};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Side, alternate},
    say,
    stage::system::start_idem,
};

/// Among these is the number of connections at which one row a time is fastest.
const CLIENTS: [usize; 3] = [8, 16, 64];

/// On Postgres and on SQLite.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let rows = bench.postgres().create("rows").await?;
    bench.stage.run("idem-service", &["migrate", "--store", &rows])?;
    let store = bench.postgres().create("pairs").await?;
    let (_on_postgres, postgres) = start_idem(&mut bench.stage, "pairs-postgres", &store, &[]).await?;
    let file = format!("sqlite:{}", bench.stage.home().join("pairs.db").display());
    let (_on_sqlite, sqlite) = start_idem(&mut bench.stage, "pairs-sqlite", &file, &[]).await?;
    let clients = best_clients(bench, &rows).await?;
    bench.postgres().checkpoint().await?;
    let (bench, rows) = (&*bench, rows.as_str());
    let sides = vec![
        Side::new("pairs, Postgres", move |_| reserve_and_complete(bench, postgres, bench.plan())),
        Side::new("pairs, SQLite", move |_| reserve_and_complete(bench, sqlite, bench.plan())),
        Side::new("(a) one row a time", move |_| looped(bench, "rows", rows, clients, bench.plan())),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![
        Bar::times(format!("pairs on Postgres, against (a) at {clients} clients"), ratio(&sides[0], &sides[2]), 3.0),
        Bar::times(format!("pairs on SQLite, against (a) at {clients} clients"), ratio(&sides[1], &sides[2]), 2.0),
    ];
    Ok(Report::new("pairs", bars, sides))
}

async fn best_clients(bench: &Bench, rows: &str) -> anyhow::Result<usize> {
    let mut best = (0.0, CLIENTS[0]);
    for clients in CLIENTS {
        let measured = looped(bench, "rows", rows, clients, bench.probe()).await?.checked()?;
        say::progress(&format!("(a) with {clients} clients: {}", measured.line()));
        if measured.rate() > best.0 {
            best = (measured.rate(), clients);
        }
    }
    Ok(best.1)
}
