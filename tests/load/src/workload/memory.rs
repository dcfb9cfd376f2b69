//! How much memory each service takes, idle and with thousands of requests under way.

use std::{sync::Mutex, time::Duration};

use anyhow::ensure;
use tokio::time::sleep;

use super::{
    latency::enough,
    payments::{pay, pay_over, placed},
};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Rounds, Spread},
    generator::pace::{Pace, Plan},
    say,
    stage::{
        machine::{allow_files, resident},
        system::{System, Wanted},
    },
};

/// They come this fast at most, and no faster than half of what the product does: this is about memory, not about a crowd at a door.
const ARRIVING_MAX: f64 = 600.0;
/// The orders service waits no longer for the acquirer here.
const SLOWEST: Duration = Duration::from_secs(190);
/// To find out how fast payments go.
const PROBE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const MEGABYTE: f64 = 1_000_000.0;

/// Payments that take their time, each on a connection of its own.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let in_flight = bench.settings.in_flight;
    // Both ends of every connection, and room.
    allow_files(4 * in_flight as u64)?;
    let mut wanted = Wanted::one("memory");
    // However long it takes until all are under way, none may be given up.
    wanted.gateway_flags = words(&["--upstream-timeout", "200s", "--lease", "300s"]);
    wanted.orders_flags = words(&["--acquirer-timeout", "190s"]);
    let system = System::start(&mut bench.stage, &wanted).await?;
    sleep(Duration::from_secs(2)).await;
    let idle = sizes(&system)?;
    system.offer("hot", 1).await?;
    let ids = enough(bench, &system, in_flight).await?;
    ids.lock().expect("nobody panics while holding ids").truncate(in_flight);
    let peak = pay(bench, &system, placed(bench, &system, PROBE).await?, "pm_approved", bench.preparing(PROBE)).await?;
    let peak = peak.checked()?.rate();
    let rate = (peak / 2.0).min(ARRIVING_MAX);
    let arriving = Duration::from_secs_f64(in_flight as f64 / rate);
    // When the last comes, the first is still under way.
    let takes = arriving.mul_f64(1.2) + Duration::from_secs(2);
    ensure!(takes < SLOWEST, "at {peak:.0} payments a second, {in_flight} are never under way together");
    let method = format!("pm_slow_{}", takes.as_millis());
    let plan = Plan { pace: Pace::Open(rate), warm_up: Duration::ZERO, length: arriving };
    let paying = pay_over(in_flight, system.gateway(), ids, &method, plan, 0.0);
    let most = Mutex::new(idle.clone());
    let watching = async {
        loop {
            sleep(LOOK_EVERY).await;
            let now = sizes(&system).unwrap_or_default();
            let mut most = most.lock().expect("nobody panics while holding sizes");
            for ((_, most), (_, now)) in most.iter_mut().zip(now) {
                *most = f64::max(*most, now);
            }
        }
    };
    let paid = tokio::select! {
        paid = paying => paid?.checked()?,
        () = watching => unreachable!("it watches for ever"),
    };
    ensure!(paid.count == in_flight as u64, "only {} requests were in flight", paid.count);
    say::progress(&format!("{in_flight} payments at once: {}", paid.line()));
    let most = most.into_inner().expect("nobody panics while holding sizes");
    let mut bars = Vec::new();
    for (name, bytes) in &idle {
        bars.push(Bar::at_most(format!("memory, idle: {name}"), one(*bytes), "MB", 40.0));
    }
    for (name, bytes) in &most {
        bars.push(Bar::at_most(format!("memory, {in_flight} requests in flight: {name}"), one(*bytes), "MB", 150.0));
    }
    let sides = vec![Rounds { each: vec![paid], ..Rounds::named(&format!("{in_flight} payments at once")) }];
    Ok(Report::new("memory", bars, sides))
}

/// What each service has resident, in megabytes.
pub fn sizes(system: &System) -> anyhow::Result<Vec<(String, f64)>> {
    system
        .services()
        .map(|program| {
            let name = program.name().trim_start_matches("memory-").trim_end_matches("-0").to_owned();
            Ok((name, resident(program.pid())? as f64 / MEGABYTE))
        })
        .collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn one(value: f64) -> Spread {
    Spread::of(&[value])
}
