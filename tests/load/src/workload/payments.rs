//! `POST /v1/payments` for orders placed before, with an acquirer that answers at once.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::json;
use uuid::Uuid;

use super::{
    baselines::Naive,
    keyed::{Body, Ids, KeyedPosts, Keys},
    orders::{Spreading, orders, ratio},
};
use crate::{
    bar::{Bar, Report},
    bench::{Bench, over_http},
    compare::{Side, alternate},
    generator::{measured::Measured, pace::Plan},
    stage::system::{System, Wanted},
};

/// Against the naive handler.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let naive = Naive::start(bench).await?;
    let system = System::start(&mut bench.stage, &Wanted::one("payments")).await?;
    system.offer("hot", 1).await?;
    bench.postgres().checkpoint().await?;
    let (bench, naive, system) = (&*bench, &naive, &system);
    let sides = vec![
        Side::new("payments", move |_| async move {
            // As long as they are paid for, and longer, so that there are enough of them.
            let placed =
                placed(bench, system, (bench.settings.warm_up() + bench.settings.length()).mul_f64(1.5)).await?;
            pay(bench, system, placed, "pm_approved", bench.plan()).await
        }),
        Side::new("(e) naive handler", move |_| naive.orders(bench, bench.plan(), bench.settings.retries)),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![Bar::times("payments with an instant acquirer, against (e)", ratio(&sides[0], &sides[1]), 1.0)];
    Ok(Report::new("payments", bars, sides))
}

/// Orders that nobody has paid, as many as are placed in so long.
pub async fn placed(bench: &Bench, system: &System, length: std::time::Duration) -> anyhow::Result<Ids> {
    let ids: Ids = Arc::new(Mutex::new(Vec::new()));
    orders(bench, system, Spreading::Hot, bench.preparing(length), Some(ids.clone())).await?.checked()?;
    Ok(ids)
}

/// Pays them, one after the other, until none is left or the time is over.
pub async fn pay(bench: &Bench, system: &System, orders: Ids, method: &str, plan: Plan) -> anyhow::Result<Measured> {
    pay_over(bench.settings.connections, system.gateway(), orders, method, plan, bench.settings.retries).await
}

/// The same over so many connections.
pub async fn pay_over(
    connections: usize,
    gateway: SocketAddr,
    orders: Ids,
    method: &str,
    plan: Plan,
    retries: f64,
) -> anyhow::Result<Measured> {
    let method = method.to_owned();
    let body: Body = Arc::new(move |_| {
        let order = orders.lock().expect("nobody panics while holding ids").pop()?;
        Some(json!({"orderId": order, "paymentMethod": method}).to_string())
    });
    let run = Uuid::new_v4();
    over_http("payments", connections, plan, gateway, move |session| KeyedPosts {
        path: "/v1/payments",
        keys: Keys::new(run, session, retries),
        body: body.clone(),
        says_replays: true,
        ids: None,
        last: String::new(),
    })
    .await
}
