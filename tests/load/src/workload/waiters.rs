//! How soon those who wait for an answer have it: `Prefer: wait`, on the replica that completes the key and on another.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use futures::future::{join, join_all, try_join_all};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{keyed::post, payments::placed};
use crate::{
    bar::{Bar, Report},
    bench::Bench,
    compare::{Rounds, Spread},
    generator::{connection::Connection, measured::Measured},
    say,
    stage::system::{System, Wanted},
};

const WAITERS: usize = 100;
/// The acquirer takes so long, by its method; all wait by then.
const METHOD: &str = "pm_slow_2000";
/// Until then the original surely holds its key.
const HEAD_START: Duration = Duration::from_millis(400);

/// Half of them at the gateway of the original, half at another gateway with another idempotency service.
pub async fn run(bench: &mut Bench) -> anyhow::Result<Report> {
    let system = System::start(&mut bench.stage, &Wanted { replicas: 2, ..Wanted::one("waiters") }).await?;
    system.offer("hot", 1).await?;
    let orders = placed(bench, &system, Duration::from_millis(300)).await?;
    let mut same = Rounds::named("waiters on the same replica");
    let mut other = Rounds::named("waiters on another replica");
    for _ in 0..bench.settings.rounds() {
        let order = orders.lock().expect("nobody panics while holding ids").pop().context("no order is left")?;
        let (own, others) = one_crowd(&system, &order).await?;
        for (rounds, delays) in [(&mut same, own), (&mut other, others)] {
            let mut measured = Measured::new();
            delays.into_iter().for_each(|delay| measured.record(delay));
            let measured = measured.checked()?;
            say::progress(&format!("{}: the last after {:.1} ms", rounds.name, measured.latency.max() as f64 / 1000.0));
            rounds.each.push(measured);
        }
    }
    let last = |rounds: &Rounds| Spread::of(&rounds.quantiles(1.0));
    let bars = vec![
        Bar::at_most("the last of 50 waiters after completion, same replica", last(&same), "ms", 50.0),
        Bar::at_most("the last of 50 waiters after completion, another replica", last(&other), "ms", 500.0),
    ];
    Ok(Report::new("waiters", bars, vec![same, other]))
}

/// How long after the original's answer each waiter had it, at the first gateway and at the second.
async fn one_crowd(system: &System, order: &str) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let key = Uuid::new_v4().to_string();
    let request = |more: &str| {
        let mut bytes = Vec::new();
        let body = json!({"orderId": order, "paymentMethod": METHOD}).to_string();
        post(&mut bytes, "/v1/payments", Some(&key), more, &body);
        bytes
    };
    let (first, second) = (system.gateways[0], system.gateways[1]);
    let original = request("");
    let waiting = request("prefer: wait=20\r\n");
    let original = answered(first, &original, Duration::ZERO, false);
    let crowd =
        join_all((0..WAITERS).map(|n| answered(if n % 2 == 0 { first } else { second }, &waiting, HEAD_START, true)));
    let (completed, answers) = join(original, crowd).await;
    let completed = completed.context("the original")?;
    let answers = try_join_all(answers.into_iter().map(std::future::ready)).await.context("a waiter")?;
    // A waiter may have its answer a moment before the original has its own.
    let delays: Vec<Duration> = answers.iter().map(|at| at.saturating_duration_since(completed)).collect();
    Ok((delays.iter().step_by(2).copied().collect(), delays.iter().skip(1).step_by(2).copied().collect()))
}

/// When the answer came.
async fn answered(gateway: SocketAddr, request: &[u8], after: Duration, is_replay: bool) -> anyhow::Result<Instant> {
    sleep(after).await;
    let mut connection = Connection::new(gateway);
    let reply = connection.exchange(request).await?;
    let at = Instant::now();
    let body = String::from_utf8_lossy(reply.body);
    ensure!(reply.status == 201, "{} {body}", reply.status);
    ensure!(is_replay == (reply.header("idempotent-replayed") == Some("true")), "replayed or not: {body}");
    Ok(at)
}
