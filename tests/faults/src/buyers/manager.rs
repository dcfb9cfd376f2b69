//! The venue's manager: opens and closes seats of the hot ticket types while they are fought for.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::{sync::watch, time::timeout};

use super::{Market, Phase};
use crate::{
    edge::Edge,
    history::{Control, Deed, Event, Recorder},
};

const EVERY_MS: std::ops::Range<u64> = 1_500..6_000;

/// Changes capacities until the shop closes.
pub(super) struct Manager {
    pub(super) edge: Edge,
    pub(super) recorder: Recorder,
    pub(super) market: Market,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) seed: u64,
}

impl Manager {
    pub(super) async fn work(mut self) -> anyhow::Result<()> {
        let mut randomness = StdRng::seed_from_u64(self.seed);
        let client = reqwest::Client::builder().no_proxy().timeout(self.edge.client_timeout).build()?;
        loop {
            let pause = Duration::from_millis(randomness.random_range(EVERY_MS));
            let closed = self.phase.wait_for(|phase| *phase > Phase::Buying);
            if timeout(pause, closed).await.is_ok() {
                return Ok(());
            }
            let (name, body) = self.market.resized(&mut randomness);
            let gateway = self.edge.gateways[randomness.random_range(0..self.edge.gateways.len())];
            let url = format!("http://{gateway}/v1/ticket-types/{name}");
            let answer = client.put(url).bearer_auth(&self.edge.operator_key).json(&body).send().await;
            let status = answer.ok().map(|answer| answer.status().as_u16());
            let ms = self.edge.clock.now_ms();
            let target = format!("{name} to {}", body["capacity"]);
            self.recorder.record(Event::Control(Control { ms, deed: Deed::Resize, target, status }));
        }
    }
}
