//! Looks at the stock and at the fencing tokens all the time, past every service.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use chassis::tasks::Tasks;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    Database,
    read::{stock, tokens},
};
use crate::{
    edge::Edge,
    history::{Event, Recorder, TokenSample, TokenStore},
};

/// The stock alone is cheap to read.
const EVERY: Duration = Duration::from_millis(300);
/// Adding up the orders, and reading all tokens, takes the longer the more there are: never more often than this,
const LONG_EVERY: Duration = Duration::from_secs(2);
/// and never for more than one part of the time in so many.
const SHARE: u32 = 25;

/// Sampling, until it is stopped.
pub struct Sampler {
    stop: watch::Sender<bool>,
    work: JoinHandle<()>,
}

impl Sampler {
    /// Begins to look.
    pub fn start(edge: &Edge, recorder: &Recorder) -> Self {
        let (stop, stopped) = watch::channel(false);
        let look = Look {
            edge: edge.clone(),
            recorder: recorder.clone(),
            database: Database::new(edge.store.clone()),
            known: HashMap::new(),
        };
        Self { stop, work: Tasks::new().spawn("sampler", look.work(stopped)) }
    }

    /// Looks no more. Fails when it had stopped looking before.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.work.await.context("the sampler did not look until the end")
    }
}

struct Look {
    edge: Edge,
    recorder: Recorder,
    database: Database,
    /// The last sample of each token: only what has changed is recorded.
    known: HashMap<(TokenStore, String), (i64, String)>,
}

impl Look {
    async fn work(mut self, stopped: watch::Receiver<bool>) {
        let mut next_long = Instant::now();
        while !*stopped.borrow() {
            let (ms, begun) = (self.edge.clock.now_ms(), Instant::now());
            let is_long = begun >= next_long;
            // While a store cannot be read there is nothing to see.
            if let Ok(sample) = stock(&mut self.database, ms, is_long).await {
                self.recorder.record(Event::Stock(sample));
            }
            if is_long {
                self.tokens(ms).await;
                next_long = Instant::now() + (begun.elapsed() * SHARE).max(LONG_EVERY);
            }
            sleep(EVERY).await;
        }
    }

    /// Both databases or neither; the orders service's first, so that what it has seen had been granted by then.
    async fn tokens(&mut self, ms: u64) {
        let Ok(seen) = tokens(&mut self.database, ms, TokenStore::Orders).await else { return };
        let Ok(granted) = tokens(&mut self.database, ms, TokenStore::Idem).await else { return };
        let news: Vec<TokenSample> = seen.into_iter().chain(granted).filter(|sample| self.is_news(sample)).collect();
        // Also when nothing has changed: what was open then was still open.
        self.recorder.record(Event::Tokens { ms, seen: news });
    }

    fn is_news(&mut self, sample: &TokenSample) -> bool {
        let now = (sample.token, sample.state.clone());
        self.known.insert((sample.store, sample.name.clone()), now.clone()).as_ref() != Some(&now)
    }
}
