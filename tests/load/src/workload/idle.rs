//! What a system costs that nobody calls.

use std::time::Duration;

use tokio::time::sleep;

use super::orders::{Spreading, orders};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::Spread,
    say,
    stage::{
        machine::processor_time,
        system::{System, Wanted},
    },
};

/// What was under way comes to its end, and Postgres notes after a checkpoint that nothing runs: its background writer looks every 15 s,
/// and sleeps for 10 s when nothing happens.
const QUIET: Duration = Duration::from_secs(40);
const UNTIL_TOLD: Duration = Duration::from_secs(12);
const LENGTH: Duration = Duration::from_secs(20);

/// Right after it was busy, as every system is that sleeps.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let system = System::start(&mut bench.stage, &Wanted::one("idle")).await?;
    system.offer("hot", 1).await?;
    orders(bench, &system, Spreading::Hot, bench.probe(), None).await?.checked()?;
    // Connections that are idle say only after a while what they have changed, and autovacuum goes by that.
    sleep(UNTIL_TOLD).await;
    bench.postgres().vacuum_all().await?;
    bench.postgres().checkpoint().await?;
    sleep(QUIET).await;
    let (mut shares, mut written) = (Vec::new(), Vec::new());
    for _ in 0..if bench.settings.quick { 1 } else { 3 } {
        let (used, position) = (used(&system)?, bench.postgres().log_position().await?);
        sleep(LENGTH).await;
        let taken = self::used(&system)?.saturating_sub(used);
        shares.push(100.0 * taken.as_secs_f64() / LENGTH.as_secs_f64());
        let now = bench.postgres().log_position().await?;
        written.push((now - position) as f64);
        if now > position {
            say::progress(&bench.postgres().log_summary(position, now)?);
        }
    }
    let bars = vec![
        Bar::at_most("processor time of all services, asleep", Spread::of(&shares), "% of a core", 0.5),
        Bar::at_most("written by Postgres in 20 s, asleep", Spread::of(&written), "bytes", 0.0),
    ];
    Ok(Report::new("idle", bars, Vec::new()))
}

fn used(system: &System) -> anyhow::Result<Duration> {
    system.services().map(|program| processor_time(program.pid())).sum()
}
