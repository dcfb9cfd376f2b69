//! What a key costs a single request: at a tenth of the highest rate, with a key and without.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context;
use uuid::Uuid;

use super::{
    keyed::{Ids, post},
    payments::placed,
};
use crate::{
    bar::{Bar, Report},
    bench::{Bench, over_http},
    compare::{Side, Spread, alternate},
    generator::{
        measured::Measured,
        pace::Plan,
        script::{Expected, Script},
    },
    say,
    stage::{
        machine::durable_write,
        system::{System, Wanted},
    },
};

/// Of the highest rate.
const LOAD: f64 = 0.1;

/// `POST /v1/orders/{id}/confirm`, each order once; a key is optional there.
struct Confirms {
    orders: Ids,
    is_keyed: bool,
}

// === impl Confirms ===

impl Script for Confirms {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Expected> {
        let order = self.orders.lock().expect("nobody panics while holding ids").pop()?;
        let key = self.is_keyed.then(|| Uuid::new_v4().to_string());
        post(request, &format!("/v1/orders/{order}/confirm"), key.as_deref(), "", "{}");
        Some(Expected { status: 200, is_replay: Some(false) })
    }
}

/// With and without a key, in turn.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let system = System::start(&mut bench.stage, &Wanted::one("latency")).await?;
    system.offer("hot", 1).await?;
    let (bench, system) = (&*bench, &system);
    let some = placed(bench, system, Duration::from_secs(4)).await?;
    let peak = confirms(bench, system, some, true, bench.probe()).await?.checked()?.rate();
    let rate = peak * LOAD;
    say::progress(&format!("confirmations with a key: {peak:.0}/s at most, so {rate:.0}/s now"));
    let seconds = (bench.settings.warm_up() + bench.settings.length()).as_secs_f64();
    let turns = 2 * bench.settings.rounds();
    let needed = (rate * seconds * 1.1) as usize + 10;
    let orders = enough(bench, system, needed * turns).await?;
    bench.postgres().checkpoint().await?;
    let turn = move |is_keyed: bool, orders: Ids| async move {
        let own = taken(&orders, needed)?;
        confirms(bench, system, own, is_keyed, bench.open_loop(rate)).await
    };
    let orders = &orders;
    let sides = vec![
        Side::new("confirm, keyed", move |_| turn(true, orders.clone())),
        Side::new("confirm, unkeyed", move |_| turn(false, orders.clone())),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let (keyed, unkeyed) = (&sides[0], &sides[1]);
    let durable = durable_write(bench.stage.home())?.as_secs_f64() * 1000.0;
    let allowed = 2.0 * durable + 1.0;
    let extra: Vec<f64> =
        keyed.quantiles(0.5).iter().zip(unkeyed.quantiles(0.5)).map(|(with, without)| with - without).collect();
    let what = format!("p50 of a keyed request beyond an unkeyed one (fdatasync {durable:.2} ms)");
    let bars = vec![
        Bar::at_most(what, Spread::of(&extra), "ms", allowed),
        Bar::at_most(
            "p99 of a keyed request against its p50",
            Spread::ratio(&keyed.quantiles(0.99), &keyed.quantiles(0.5)),
            "×",
            3.0,
        ),
    ];
    Ok(Report::new("latency", bars, sides))
}

async fn confirms(bench: &Bench, system: &System, orders: Ids, is_keyed: bool, plan: Plan) -> anyhow::Result<Measured> {
    let label = if is_keyed { "keyed" } else { "unkeyed" };
    let make = move |_| Confirms { orders: orders.clone(), is_keyed };
    over_http(label, bench.settings.connections, plan, system.gateway(), make).await
}

/// So many of them, for one turn.
fn taken(orders: &Ids, count: usize) -> anyhow::Result<Ids> {
    let mut all = orders.lock().expect("nobody panics while holding ids");
    let rest = all.len().checked_sub(count).context("too few orders")?;
    Ok(Arc::new(Mutex::new(all.split_off(rest))))
}

/// At least so many orders that nobody has paid.
pub async fn enough(bench: &Bench, system: &System, count: usize) -> anyhow::Result<Ids> {
    let all: Ids = Arc::default();
    loop {
        let have = all.lock().expect("nobody panics while holding ids").len();
        if have >= count {
            return Ok(all);
        }
        let more = placed(bench, system, Duration::from_secs(2)).await?;
        let mut more = more.lock().expect("nobody panics while holding ids");
        all.lock().expect("nobody panics while holding ids").append(&mut more);
    }
}
