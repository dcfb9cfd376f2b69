//! The baselines that several workloads are compared with.

use std::{net::SocketAddr, sync::Arc};

use serde_json::Value;
use uuid::Uuid;

use super::keyed::{KeyedPosts, Keys};
use crate::{
    bench::{ANSWER_BYTES, Bench, over_http},
    generator::{measured::Measured, pace::Plan},
    say,
    stage::program::Program,
};

/// (e), with the number of connections that suits it best.
pub struct Naive {
    address: SocketAddr,
    _program: Program,
}

// === impl Naive ===

impl Naive {
    /// Tries two sizes of its pool, and keeps the faster.
    pub async fn start(bench: &mut Bench) -> anyhow::Result<Self> {
        let url = bench.postgres().create("naive").await?;
        let mut best: Option<(f64, usize)> = None;
        for pool in [16, 32] {
            let naive = Self::with(bench, &url, pool).await?;
            let measured = naive.orders(bench, bench.probe(), 0.0).await?.checked()?;
            say::progress(&format!("(e) with {pool} connections: {}", measured.line()));
            if best.is_none_or(|(rate, _)| measured.rate() > rate) {
                best = Some((measured.rate(), pool));
            }
        }
        Self::with(bench, &url, best.map_or(16, |(_, pool)| pool)).await
    }

    async fn with(bench: &mut Bench, url: &str, pool: usize) -> anyhow::Result<Self> {
        let (answer, pool) = (ANSWER_BYTES.to_string(), pool.to_string());
        let flags = [("--url", url), ("--pool", &pool), ("--answer-bytes", &answer)];
        let (program, address) = bench.serve("naive", &flags).await?;
        Ok(Self { address, _program: program })
    }

    /// The requests that the product gets.
    pub async fn orders(&self, bench: &Bench, plan: Plan, retries: f64) -> anyhow::Result<Measured> {
        let run = Uuid::new_v4();
        let body: super::keyed::Body = Arc::new(|_| Some(super::orders::body("hot-0")));
        over_http("(e)", bench.settings.connections, plan, self.address, move |session| KeyedPosts {
            path: "/v1/orders",
            keys: Keys::new(run, session, retries),
            body: body.clone(),
            says_replays: false,
            ids: None,
            last: String::new(),
        })
        .await
    }
}

/// (a) or (b): a loop in a process of its own, which says in the end what it has measured.
pub async fn looped(bench: &Bench, kind: &str, url: &str, clients: usize, plan: Plan) -> anyhow::Result<Measured> {
    let time = |time| humantime::format_duration(time).to_string().replace(' ', "");
    let mut words: Vec<String> = vec![kind.to_owned()];
    let mut say = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    say("--url", url.to_owned());
    say("--clients", clients.to_string());
    say("--length", time(plan.length));
    say("--warm-up", time(plan.warm_up));
    if kind == "rows" {
        say("--answer-bytes", ANSWER_BYTES.to_string());
    }
    let said = bench.stage.baseline(kind, &words)?.finish().await?;
    Measured::from_json(&serde_json::from_str::<Value>(&said)?)
}
