//! `POST /v1/orders` through gateway, idempotency service and orders service.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::{
    baselines::{Naive, looped},
    keyed::{Body, Ids, KeyedPosts, Keys},
};
use crate::{
    bar::{Bar, Report},
    bench::{Bench, over_http},
    compare::{Side, Spread, alternate},
    generator::{measured::Measured, pace::Plan},
    stage::system::{System, VENUE, Wanted},
};

/// As many ticket types as a large house has dates.
const TYPES: usize = 1_000;

/// Everybody wants the same.
pub async fn hot(bench: &mut Bench) -> anyhow::Result<Report> {
    let naive = Naive::start(bench).await?;
    let stock = bench.postgres().create("stock").await?;
    let system = System::start(&mut bench.stage, &Wanted::one("hot")).await?;
    system.offer("hot", 1).await?;
    bench.postgres().checkpoint().await?;
    let (bench, naive, system, stock) = (&*bench, &naive, &system, stock.as_str());
    let sides = vec![
        Side::new("orders, one ticket type", move |_| orders(bench, system, Spreading::Hot, bench.plan(), None)),
        Side::new("(b) one order a transaction", move |_| looped(bench, "hot-row", stock, 64, bench.plan())),
        Side::new("(e) naive handler", move |_| naive.orders(bench, bench.plan(), bench.settings.retries)),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![
        Bar::times("orders, one hot ticket type, against (b)", ratio(&sides[0], &sides[1]), 6.0),
        Bar::times("orders, one hot ticket type, against (e)", ratio(&sides[0], &sides[2]), 1.5),
    ];
    Ok(Report::new("orders-hot", bars, sides))
}

/// A thousand types.
pub async fn spread(bench: &mut Bench) -> anyhow::Result<Report> {
    let naive = Naive::start(bench).await?;
    let system = System::start(&mut bench.stage, &Wanted::one("spread")).await?;
    system.offer("spread", TYPES).await?;
    bench.postgres().checkpoint().await?;
    let (bench, naive, system) = (&*bench, &naive, &system);
    let sides = vec![
        Side::new("orders, 1000 ticket types", move |_| orders(bench, system, Spreading::Even, bench.plan(), None)),
        Side::new("(e) naive handler", move |_| naive.orders(bench, bench.plan(), bench.settings.retries)),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![Bar::times("orders, 1,000 ticket types, against (e)", ratio(&sides[0], &sides[1]), 1.5)];
    Ok(Report::new("orders-spread", bars, sides))
}

/// Which types are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spreading {
    /// `hot-0`.
    Hot,
    /// `spread-0` to `spread-999`, each as often.
    Even,
}

/// Places orders.
pub async fn orders(
    bench: &Bench,
    system: &System,
    spreading: Spreading,
    plan: Plan,
    ids: Option<Ids>,
) -> anyhow::Result<Measured> {
    let (run, retries) = (Uuid::new_v4(), if ids.is_some() { 0.0 } else { bench.settings.retries });
    over_http("orders", bench.settings.connections, plan, system.gateway(), move |session| KeyedPosts {
        path: "/v1/orders",
        keys: Keys::new(run, session, retries),
        body: bodies(spreading, session),
        says_replays: true,
        ids: ids.clone(),
        last: String::new(),
    })
    .await
}

/// Asks for one seat after the other.
pub fn bodies(spreading: Spreading, session: usize) -> Body {
    match spreading {
        Spreading::Hot => Arc::new(|_| Some(body("hot-0"))),
        // Strides that have no divisor in common with the number of types, so that all come up and sessions do not march in step.
        Spreading::Even => Arc::new(move |number| {
            let types = TYPES as u64;
            let wanted = (number * 7 + session as u64 * 389) % types;
            Some(body(&format!("spread-{wanted}")))
        }),
    }
}

/// One seat.
pub fn body(ticket_type: &str) -> String {
    json!({"venueId": VENUE, "items": [{"ticketTypeId": ticket_type, "quantity": 1}]}).to_string()
}

/// Of the rates.
pub fn ratio(of: &crate::compare::Rounds, to: &crate::compare::Rounds) -> Spread {
    Spread::ratio(&of.rates(), &to.rates())
}
