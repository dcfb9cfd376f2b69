//! Whether the number of tenants is felt by each of them.

use anyhow::ensure;
use uuid::Uuid;

use super::{
    orders::ratio,
    replays::{KEYS, PREPARING, repeat},
};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Side, alternate},
    stage::system::{System, Wanted},
};

/// As many integrations as a large platform has.
const MANY: usize = 10_000;

/// Replays, which cost least, so that whatever is added to them shows: with many tenants, and with two.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let many = System::start(&mut bench.stage, &Wanted { tenants: MANY, ..Wanted::one("tenants") }).await?;
    let two = System::start(&mut bench.stage, &Wanted::one("two_tenants")).await?;
    let run = Uuid::new_v4();
    for system in [&many, &two] {
        system.offer("hot", 1).await?;
        let prepared = repeat(bench, system.gateway(), bench.preparing(PREPARING), run, (KEYS, Some(false)));
        let prepared = prepared.await?.checked()?.count;
        ensure!(prepared == KEYS * bench.settings.connections as u64, "only {prepared} answers to replay");
    }
    bench.postgres().checkpoint().await?;
    let (bench, of_many, of_two) = (&*bench, many.gateway(), two.gateway());
    let for_ever = (u64::MAX, Some(true));
    let sides = vec![
        Side::new(format!("replays, {MANY} tenants"), move |_| repeat(bench, of_many, bench.plan(), run, for_ever)),
        Side::new("replays, two tenants", move |_| repeat(bench, of_two, bench.plan(), run, for_ever)),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let what = format!("replay over REST, {MANY} tenants against two");
    let bars = vec![Bar::times(what, ratio(&sides[0], &sides[1]), 0.9)];
    Ok(Report::new("tenants", bars, sides))
}
