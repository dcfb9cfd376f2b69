//! One buyer: who it is, and its life until the shop closes.

use std::sync::Arc;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::watch;

use super::{Market, Phase, pursuit::Bought, sender::Sender, spelling};

/// Of so many finished intents a buyer remembers the keys.
const MEMORY: usize = 200;

/// A buyer. It acts for one tenant, and everything it does by chance comes from its own seed.
pub(super) struct Buyer {
    pub(super) number: u32,
    pub(super) tenant: usize,
    pub(super) randomness: StdRng,
    pub(super) sender: Arc<Sender>,
    pub(super) market: Arc<Market>,
    pub(super) phase: watch::Receiver<Phase>,
    /// What it could ask for once more.
    pub(super) bought: Vec<Bought>,
    /// The order at hand is for seats that others wait for.
    pub(super) is_after_hot_seats: bool,
    /// Its keys begin with this.
    name: String,
    /// How many keys it has made.
    keys: u64,
}

impl Buyer {
    pub(super) fn new(
        number: usize,
        randomness: StdRng,
        sender: Arc<Sender>,
        market: Arc<Market>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let tenant = number % sender.edge.tenants.len();
        // Buyers of different tenants use the same keys, and never meet.
        let name = (number / sender.edge.tenants.len()).to_string();
        let number = u32::try_from(number).expect("a few buyers");
        Self {
            number,
            tenant,
            randomness,
            sender,
            market,
            phase,
            bought: Vec::new(),
            is_after_hot_seats: false,
            name,
            keys: 0,
        }
    }

    /// The same buyer at another till, with keys of its own: it does something else at the same time.
    pub(super) fn twin(&mut self) -> Self {
        self.keys += 1;
        Self {
            number: self.number,
            tenant: self.tenant,
            randomness: StdRng::seed_from_u64(self.randomness.random()),
            sender: Arc::clone(&self.sender),
            market: Arc::clone(&self.market),
            phase: self.phase.clone(),
            bought: Vec::new(),
            is_after_hot_seats: self.is_after_hot_seats,
            name: format!("{}-{}", self.name, self.keys),
            keys: 0,
        }
    }

    /// One journey after another until the shop closes.
    pub(super) async fn shop(mut self) {
        // Not all at once.
        self.think(0..1_500).await;
        while *self.phase.borrow() == Phase::Buying {
            self.journey().await;
            if self.bought.len() > MEMORY {
                let forgotten = self.randomness.random_range(0..self.bought.len());
                self.bought.swap_remove(forgotten);
            }
            self.think(0..400).await;
        }
    }

    /// A key that this tenant has not used.
    pub(super) fn new_key(&mut self) -> String {
        self.keys += 1;
        spelling::text(&mut self.randomness, &format!("{}-{}", self.name, self.keys))
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.randomness.random_bool(probability.clamp(0.0, 1.0))
    }

    pub(super) fn gateway(&mut self) -> usize {
        self.randomness.random_range(0..self.sender.edge.gateways.len())
    }

    pub(super) fn tenant_name(&self) -> String {
        self.sender.edge.tenants[self.tenant].name.clone()
    }
}
