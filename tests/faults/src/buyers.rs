//! Those who buy: each goes through one journey after another, as the integration of a tenant would, and retries as a good client
//! does. Everything they send and hear is recorded.

mod ask;
mod buyer;
mod clerk;
mod forger;
mod journey;
mod market;
mod pace;
mod pursuit;
mod sender;
mod spelling;
mod sweep;

use std::{sync::Arc, time::Duration};

use chassis::tasks::Tasks;
use futures::future::join_all;
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{edge::Edge, history::Recorder};

use self::{buyer::Buyer, clerk::Clerk, pace::Pace, sender::Sender};

pub use market::Market;
pub use sweep::sweep;

/// How buyers buy.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What they want follows from it.
    pub seed: u64,
    /// How many there are.
    pub count: usize,
    /// How many requests they send a second, all together.
    pub rate: f64,
}

/// What is asked of buyers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// Buy.
    Buying,
    /// Begin nothing new, but get every answer.
    Finishing,
    /// Stop asking.
    Over,
}

/// Buyers at work.
pub struct Buyers {
    phase: watch::Sender<Phase>,
    at_work: Vec<JoinHandle<()>>,
}

impl Buyers {
    /// Sends everybody shopping.
    pub fn start(edge: &Edge, recorder: &Recorder, market: Market, settings: Settings) -> anyhow::Result<Self> {
        let (phase, seen) = watch::channel(Phase::Buying);
        let sender = Arc::new(Sender::new(edge.clone(), recorder.clone(), Pace::new(settings.rate))?);
        let tasks = Tasks::new();
        let market = Arc::new(market);
        let mut at_work = Vec::new();
        for number in 0..settings.count {
            // Of their own each, so that what one wants does not depend on how fast the others are.
            let seed = settings.seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
            let randomness = StdRng::seed_from_u64(seed);
            let buyer = Buyer::new(number, randomness, Arc::clone(&sender), Arc::clone(&market), seen.clone());
            at_work.push(tasks.spawn("buyer", buyer.shop()));
        }
        let clerk = Clerk::new(edge.clone(), recorder.clone(), seen)?;
        at_work.push(tasks.spawn("clerk", clerk.work()));
        Ok(Self { phase, at_work })
    }

    /// Lets everybody get the answers that they are waiting for, which they do for so long at most, and go home.
    pub async fn finish(mut self, patience: Duration) {
        self.phase.send_replace(Phase::Finishing);
        // The clerk goes on until the last buyer has gone.
        let clerk = self.at_work.pop();
        let all = join_all(&mut self.at_work);
        if timeout(patience, all).await.is_err() {
            self.phase.send_replace(Phase::Over);
            join_all(self.at_work.iter_mut().filter(|buyer| !buyer.is_finished())).await;
        }
        self.phase.send_replace(Phase::Over);
        if let Some(clerk) = clerk {
            // It was only waiting for the word.
            drop(clerk.await);
        }
    }
}
