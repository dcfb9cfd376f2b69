//! Whether anything grows: memory of each service and the table of keys, over many retentions.

use std::{sync::Mutex, time::Duration};

use anyhow::ensure;
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    keyed::{KeyedPosts, Keys},
    memory::sizes,
    orders::{Spreading, bodies, orders},
};
use crate::{
    bar::{Bar, Report},
    bench::{Bench, over_http},
    compare::{Rounds, Spread, median},
    generator::pace::{Pace, Plan},
    say,
    stage::{
        postgres::Server,
        system::{System, Wanted},
    },
};

/// A day in six seconds: what is over is purged each second. The memory of answers is small, so that it is full before anything is
/// compared.
const GATEWAY: [&str; 8] =
    ["--upstream-timeout", "2s", "--lease", "3s", "--retention", "6s", "--replay-cache-mib", "1"];
const IDEM: [&str; 4] = ["--purge-interval", "1s", "--replay-cache-mib", "4"];
/// Fewer looks say nothing.
const LOOKS_MIN: usize = 20;
/// Of the highest rate.
const LOAD: f64 = 0.5;
/// Of a hundred requests, so many are the one before sent again.
const RETRIES: f64 = 5.0;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const MEGABYTE: f64 = 1_000_000.0;

/// What something measured, look by look.
#[derive(Clone)]
struct Watched {
    name: String,
    /// Megabytes.
    sizes: Vec<f64>,
}

/// Orders in an open loop, some of them sent again.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let mut wanted = Wanted::one("soak");
    wanted.gateway_flags = GATEWAY.map(str::to_owned).to_vec();
    wanted.idem_flags = IDEM.map(str::to_owned).to_vec();
    let system = System::start(&mut bench.stage, &wanted).await?;
    system.offer("hot", 1).await?;
    let peak = orders(bench, &system, Spreading::Hot, bench.probe(), None).await?.checked()?.rate();
    let length = bench.settings.soak();
    let plan = Plan { pace: Pace::Open(peak * LOAD), warm_up: Duration::ZERO, length };
    let run = Uuid::new_v4();
    let ordering = over_http("soak", bench.settings.connections, plan, system.gateway(), move |session| KeyedPosts {
        path: "/v1/orders",
        keys: Keys::new(run, session, RETRIES),
        body: bodies(Spreading::Hot, session),
        says_replays: true,
        ids: None,
        last: String::new(),
    });
    let watched = Mutex::new(Vec::new());
    let ordered = tokio::select! {
        ordered = ordering => ordered?.checked()?,
        failed = watch(bench.postgres(), &system, &watched) => return Err(failed),
    };
    say::progress(&format!("orders for {length:?}: {}", ordered.line()));
    let watched = watched.into_inner().expect("nobody panics while holding sizes");
    let looks = watched.first().map_or(0, |watched| watched.sizes.len());
    ensure!(looks >= LOOKS_MIN, "only {looks} looks at the sizes: let it go on for longer (--soak)");
    let bars = watched.iter().map(Watched::bar).collect();
    let sides = vec![Rounds { each: vec![ordered], ..Rounds::named("orders, 5 % sent again") }];
    Ok(Report::new("soak", bars, sides))
}

/// Looks until it fails.
async fn watch(postgres: &Server, system: &System, watched: &Mutex<Vec<Watched>>) -> anyhow::Error {
    loop {
        sleep(LOOK_EVERY).await;
        let looked = match look(postgres, system).await {
            Ok(looked) => looked,
            Err(error) => return error,
        };
        let mut watched = watched.lock().expect("nobody panics while holding sizes");
        if watched.is_empty() {
            watched.extend(looked.iter().map(|(name, _)| Watched { name: name.clone(), sizes: Vec::new() }));
        }
        watched.iter_mut().zip(looked).for_each(|(watched, (_, size))| watched.sizes.push(size));
    }
}

async fn look(postgres: &Server, system: &System) -> anyhow::Result<Vec<(String, f64)>> {
    let mut looked = sizes(system)?;
    let query = "SELECT pg_total_relation_size('idem_keys')";
    let table: i64 = postgres.client(&system.idem_database).await?.query_one(query, &[]).await?.get(0);
    looked.push(("table of keys".to_owned(), table as f64 / MEGABYTE));
    Ok(looked)
}

// === impl Watched ===

impl Watched {
    /// The last quarter of the time against the second: in the first one memories fill and the table finds its size.
    fn bar(&self) -> Bar {
        let quarter = self.sizes.len() / 4;
        let (second, last) = (median(&self.sizes[quarter..2 * quarter]), &self.sizes[3 * quarter..]);
        let ratios: Vec<f64> = last.iter().map(|size| size / second).collect();
        let what = format!("size of {} in the last quarter, against the second ({second:.1} MB)", self.name);
        Bar::at_most(what, Spread::of(&ratios), "×", 1.05)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_misses_its_bar_and_what_found_its_size_does_not() {
        let watched = |sizes: Vec<f64>| Watched { name: "it".to_owned(), sizes };
        let growing = watched((0..80).map(|look| 100.0 + f64::from(look)).collect());
        assert!(!growing.bar().is_met(), "{:?}", growing.bar());
        let settled = watched((0..80).map(|look| f64::from(look.min(15)) + f64::from(look % 3)).collect());
        assert!(settled.bar().is_met(), "{:?}", settled.bar());
    }
}
