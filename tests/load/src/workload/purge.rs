//! Whether serving notices that a million expired answers are being deleted.

use std::time::Duration;

use anyhow::ensure;

use super::{
    loaded::{Loaded, left},
    orders::{Spreading, orders},
};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Rounds, Spread},
    generator::{
        measured::Measured,
        pace::{Pace, Plan},
    },
    say,
    stage::system::{System, Wanted},
};

const BODY_BYTES: usize = 2048;
/// Of the highest rate: buyers are served well while the purge is at work.
const LOAD: f64 = 0.2;

/// Fresh orders in an open loop, before, during and after.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let count = bench.settings.expired();
    let mut wanted = Wanted::one("purge");
    wanted.idem_flags = ["--purge-interval", "24h"].map(str::to_owned).to_vec();
    let mut system = System::start(&mut bench.stage, &wanted).await?;
    system.offer("hot", 1).await?;
    let peak = orders(bench, &system, Spreading::Hot, bench.probe(), None).await?.checked()?.rate();
    let (rate, turns) = (peak * LOAD, bench.settings.rounds());
    say::progress(&format!("loading {count} expired keys"));
    Loaded { count, body_bytes: BODY_BYTES, live: None }.into(bench.postgres(), &system.idem_database).await?;

    let mut without = Rounds::named("orders, no purge");
    let mut with = Rounds::named("orders, while purging");
    for _ in 0..turns {
        without.each.push(turn(bench, &system, &without.name, rate).await?);
    }
    system.restart_idem(&bench.stage, &["--purge-interval", "1s"].map(str::to_owned)).await?;
    // The first look of the purge comes an interval after the start; callers connect again meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut before = i64::try_from(count)?;
    for number in 0..turns {
        let measured = turn(bench, &system, &with.name, rate).await?;
        let now = left(bench.postgres(), &system.idem_database).await?;
        say::progress(&format!("  {now} expired keys left"));
        ensure!(number > 0 || now < before, "nothing was purged");
        if now == before {
            break;
        }
        with.each.push(measured);
        before = now;
    }
    // However many rounds that takes: what is left is not left for ever.
    while before > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = left(bench.postgres(), &system.idem_database).await?;
        ensure!(now < before, "the purge has stopped with {now} expired keys left");
        before = now;
    }
    for _ in 0..turns {
        without.each.push(turn(bench, &system, &without.name, rate).await?);
    }
    let database = system.idem_database.clone();
    drop(system);
    bench.postgres().remove(&database).await?;
    let (p99_with, p99_without) = (with.quantiles(0.99), without.quantiles(0.99));
    let middle = crate::compare::median(&p99_without);
    let ratios: Vec<f64> = p99_with.iter().map(|p99| p99 / middle).collect();
    let what = format!("p99 of fresh orders while {count} expired keys are purged");
    let bars = vec![Bar::at_most(what, Spread::of(&ratios), "×", 1.3)];
    Ok(Report::new("purge", bars, vec![with, without]))
}

async fn turn(bench: &Bench, system: &System, name: &str, rate: f64) -> anyhow::Result<Measured> {
    // Shorter than the purge takes, so that it is under way all the time.
    let length = bench.settings.length().min(Duration::from_secs(4));
    let plan = Plan { pace: Pace::Open(rate), warm_up: Duration::from_millis(500), length };
    let measured = orders(bench, system, Spreading::Hot, plan, None).await?.checked()?;
    say::progress(&format!("{name}: {}", measured.line()));
    Ok(measured)
}
