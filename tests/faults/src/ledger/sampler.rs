//! Looks at the stock and at the fencing tokens all the time, past every service.

use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use chassis::tasks::Tasks;
use tokio::{sync::watch, task::JoinHandle, time::sleep};

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
/// Every so many looks the orders are added up, too.
const ADDED_UP: u64 = 6;
/// Every so many looks all tokens are read.
const TOKENS: u64 = 10;

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
        let mut looks = 0;
        while !*stopped.borrow() {
            let ms = self.edge.clock.now_ms();
            // While a store cannot be read there is nothing to see.
            if let Ok(sample) = stock(&mut self.database, ms, looks % ADDED_UP == 0).await {
                self.recorder.record(Event::Stock(sample));
            }
            if looks % TOKENS == 0 {
                self.tokens(ms).await;
            }
            looks += 1;
            sleep(EVERY).await;
        }
    }

    /// Both databases or neither; the orders service's first, so that what it has seen had been granted by then.
    async fn tokens(&mut self, ms: u64) {
        let Ok(seen) = tokens(&mut self.database, ms, TokenStore::Orders).await else { return };
        let Ok(granted) = tokens(&mut self.database, ms, TokenStore::Idem).await else { return };
        let news: Vec<TokenSample> = seen.into_iter().chain(granted).filter(|sample| self.is_news(sample)).collect();
        if !news.is_empty() {
            self.recorder.record(Event::Tokens { seen: news });
        }
    }

    fn is_news(&mut self, sample: &TokenSample) -> bool {
        let now = (sample.token, sample.state.clone());
        self.known.insert((sample.store, sample.name.clone()), now.clone()).as_ref() != Some(&now)
    }
}
