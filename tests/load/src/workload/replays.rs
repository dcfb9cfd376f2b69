//! Answers that were given before: over REST through the gateway, and over gRPC.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::ensure;
use uuid::Uuid;

use super::{
    keyed::post,
    orders::{body, ratio},
    reserving::{Naming, bare_calls, named_pairs, replays},
};
use crate::{
    bar::{Bar, Report},
    bench::{ANSWER_BYTES, Bench, over_http},
    compare::{Side, alternate},
    generator::{
        connection::Connection,
        measured::Measured,
        pace::Plan,
        script::{Expected, Script},
    },
    stage::system::{System, Wanted, start_idem},
};

/// Answers of each session, sent for in turn: a thousand or so in all, as of buyers whose first request timed out just now.
pub const KEYS: u64 = 16;

/// How long it may take to make them.
pub const PREPARING: Duration = Duration::from_secs(60);

/// The same requests again and again.
struct Repeats {
    run: Uuid,
    session: usize,
    sent: u64,
    last: u64,
    is_replay: Option<bool>,
}

// === impl Repeats ===

impl Script for Repeats {
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Expected> {
        if self.sent == self.last {
            return None;
        }
        let key = format!("{}-{}-{}", self.run.simple(), self.session, self.sent % KEYS);
        self.sent += 1;
        post(request, "/v1/orders", Some(&key), "", &body("hot-0"));
        Some(Expected { status: 201, is_replay: self.is_replay })
    }
}

/// Over REST.
pub async fn rest(bench: &mut Bench) -> anyhow::Result<Report> {
    let system = System::start(&mut bench.stage, &Wanted::one("replays")).await?;
    system.offer("hot", 1).await?;
    let length = answer_length(&system).await?.to_string();
    let (_bare, bare) = bench.serve("bare", &[("--answer-bytes", &length)]).await?;
    let (_echo, echo) = bench.serve("echo", &[("--answer-bytes", &length)]).await?;
    let (_hop, hop) = bench.serve("hop", &[("--echo", &format!("http://{echo}"))]).await?;
    let run = Uuid::new_v4();
    let prepared = repeat(bench, system.gateway(), bench.preparing(PREPARING), run, (KEYS, Some(false)));
    let prepared = prepared.await?.checked()?.count;
    ensure!(prepared == KEYS * bench.settings.connections as u64, "only {prepared} answers to replay");
    bench.postgres().checkpoint().await?;
    let (bench, gateway) = (&*bench, system.gateway());
    let for_ever = u64::MAX;
    let sides = vec![
        Side::new("replays over REST", move |_| repeat(bench, gateway, bench.plan(), run, (for_ever, Some(true)))),
        Side::new("(c) bare handler", move |_| repeat(bench, bare, bench.plan(), run, (for_ever, None))),
        Side::new("(d) one hop", move |_| repeat(bench, hop, bench.plan(), run, (for_ever, None))),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![
        Bar::times("replay over REST, against (c)", ratio(&sides[0], &sides[1]), 0.7),
        Bar::times("replay over REST, against (d)", ratio(&sides[0], &sides[2]), 2.0),
    ];
    Ok(Report::new("replay-rest", bars, sides))
}

/// Over gRPC.
pub async fn grpc(bench: &mut Bench) -> anyhow::Result<Report> {
    let store = bench.postgres().create("replays_grpc").await?;
    let (_service, idem) = start_idem(&mut bench.stage, "replays-grpc", &store, &[]).await?;
    let (_echo, echo) = bench.serve("echo", &[("--answer-bytes", &ANSWER_BYTES.to_string())]).await?;
    let once: Naming = Arc::new(|session, number| (number < KEYS).then(|| format!("done-{session}-{number}")));
    let prepared = named_pairs(bench, idem, bench.preparing(PREPARING), once).await?.checked()?.count;
    ensure!(prepared == KEYS * bench.settings.connections as u64, "only {prepared} answers to replay");
    bench.postgres().checkpoint().await?;
    let again: Naming = Arc::new(|session, number| Some(format!("done-{session}-{}", number % KEYS)));
    let (bench, again) = (&*bench, &again);
    let sides = vec![
        Side::new("replays over gRPC", move |_| replays(bench, idem, bench.plan(), again.clone())),
        Side::new("(f) unary echo", move |_| bare_calls(bench, echo, bench.plan())),
    ];
    let sides = alternate(bench.settings.rounds(), &bench.meter()?, sides).await?;
    let bars = vec![Bar::times("replay over gRPC, against (f)", ratio(&sides[0], &sides[1]), 1.0)];
    Ok(Report::new("replay-grpc", bars, sides))
}

/// Sends the same requests in turn, each session at most so many; every answer is a replay, or none, or whatever it is.
pub async fn repeat(
    bench: &Bench,
    address: SocketAddr,
    plan: Plan,
    run: Uuid,
    (last, is_replay): (u64, Option<bool>),
) -> anyhow::Result<Measured> {
    let make = move |session| Repeats { run, session, sent: 0, last, is_replay };
    over_http("replays", bench.settings.connections, plan, address, make).await
}

/// How long the answer is that the baselines are to match.
async fn answer_length(system: &System) -> anyhow::Result<usize> {
    let mut request = Vec::new();
    post(&mut request, "/v1/orders", Some("sample"), "", &body("hot-0"));
    let mut connection = Connection::new(system.gateway());
    let reply = connection.exchange(&request).await?;
    ensure!(reply.status == 201, "an order: {} {}", reply.status, String::from_utf8_lossy(reply.body));
    Ok(reply.body.len())
}
