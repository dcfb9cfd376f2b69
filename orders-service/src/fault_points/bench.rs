//! One store for all plays of a scenario, and the watch over its fault points.

use std::time::Duration;

use database::{
    Clock, Database, Hand, Options,
    testing::{Scratch, postgres_url, sqlite_url},
};
use fault_point::{Crossing, Watch, watch};

use crate::store;

/// Reads of the tests themselves: their points are not the product's.
pub const OWN: &str = "test: ";

/// What the plays of a scenario share. Each play has ids, a ticket type and an acquirer of its own, so they do not meet.
pub struct Bench {
    pub store: Database,
    pub hand: Hand,
    pub watch: Watch,
    pub is_postgres: bool,
    // Last, so that it outlives the store.
    _scratch: Scratch,
}

impl Bench {
    pub async fn on_sqlite() -> Self {
        Self::on(sqlite_url(), false).await
    }

    pub async fn on_postgres(name: &str) -> Self {
        Self::on(postgres_url(name).await, true).await
    }

    async fn on(scratch: Scratch, is_postgres: bool) -> Self {
        let watch = watch();
        let (clock, hand) = Clock::by_hand();
        watch.stop();
        let store = Database::open(scratch.url(), &store::SCHEMA, clock, Options::default()).await.unwrap();
        Self { store, hand, watch, is_postgres, _scratch: scratch }
    }

    pub fn advance(&self, by: Duration) {
        self.hand.advance(by);
    }

    /// What the product has crossed, in order.
    pub fn crossed(&self) -> Vec<Crossing> {
        let crossed = self.watch.seen().crossed;
        crossed.into_iter().filter(|crossing| !crossing.point.starts_with(OWN)).collect()
    }
}
