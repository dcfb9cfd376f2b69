//! Those who buy: each goes through one journey after another, as the integration of a tenant would, and retries as a good client
//! does. Everything they send and hear is recorded.

mod ask;
mod buyer;
mod clerk;
mod forger;
mod journey;
mod manager;
mod market;
mod pace;
mod pursuit;
mod sender;
mod spelling;
mod sweep;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::tasks::Tasks;
use futures::future::join_all;
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{edge::Edge, history::Recorder};

use self::{buyer::Buyer, clerk::Clerk, manager::Manager, pace::Pace, sender::Sender};

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
    buyers: Vec<JoinHandle<()>>,
    clerk: JoinHandle<()>,
    manager: JoinHandle<anyhow::Result<()>>,
}

impl Buyers {
    /// Sends everybody shopping.
    pub fn start(edge: &Edge, recorder: &Recorder, market: Market, settings: Settings) -> anyhow::Result<Self> {
        let (phase, seen) = watch::channel(Phase::Buying);
        let sender = Arc::new(Sender::new(edge.clone(), recorder.clone(), Pace::new(settings.rate))?);
        let tasks = Tasks::new();
        let manager = Manager {
            edge: edge.clone(),
            recorder: recorder.clone(),
            market: market.clone(),
            phase: seen.clone(),
            seed: settings.seed,
        };
        let manager = tasks.spawn("manager", manager.work());
        let market = Arc::new(market);
        let mut buyers = Vec::new();
        for number in 0..settings.count {
            // Of their own each, so that what one wants does not depend on how fast the others are.
            let seed = settings.seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
            let randomness = StdRng::seed_from_u64(seed);
            let buyer = Buyer::new(number, randomness, Arc::clone(&sender), Arc::clone(&market), seen.clone());
            buyers.push(tasks.spawn("buyer", buyer.shop()));
        }
        let clerk = Clerk::new(edge.clone(), recorder.clone(), seen)?;
        let clerk = tasks.spawn("clerk", clerk.work());
        Ok(Self { phase, buyers, clerk, manager })
    }

    /// Lets everybody get the answers that they are waiting for, which they do for so long at most, and go home. Fails when one of
    /// them did not get that far.
    pub async fn finish(self, patience: Duration) -> anyhow::Result<()> {
        self.phase.send_replace(Phase::Finishing);
        let phase = self.phase.clone();
        let buyers = join_all(self.buyers);
        tokio::pin!(buyers);
        let gone = match timeout(patience, &mut buyers).await {
            Ok(gone) => gone,
            Err(_) => {
                phase.send_replace(Phase::Over);
                buyers.await
            }
        };
        // The clerk goes on until the last buyer has gone.
        phase.send_replace(Phase::Over);
        for one in gone.into_iter().chain([self.clerk.await]) {
            one.context("a buyer, or the clerk, broke off")?;
        }
        self.manager.await.context("the manager broke off")?
    }
}
