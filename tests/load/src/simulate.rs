//! Past one machine: what many would do, computed from what one was measured to need.
//!
//! A keyed request passes stations: gateway, idempotency service, its store, orders service, its store, and back. A service is so many
//! cores that each take one request at a time; a store is so many flights that each carry whatever waits, at most so many rows, for a
//! fixed time and a time a row. Requests arrive at random (a Poisson process); a station's time varies around its mean. What comes out
//! is the time that requests take, which a sum of means does not show.
//!
//! Tenants are spread over cells by a hash; cells share nothing, so one is simulated, under the rate that the largest gets.

mod events;
mod sizing;

use std::fmt::Write as _;

use clap::Args;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use self::{
    events::{Station, Step, simulate},
    sizing::{Need, size},
};

/// What one keyed request needs. The defaults add up to what an order was measured to take (docs/scaling.md).
#[derive(Clone, Debug, Args)]
pub struct Simulate {
    /// Keyed requests a second, each a fresh `POST /v1/orders`.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    rates: Vec<f64>,
    /// Share of requests that are repeats: they end at the gateway, or one hop behind it.
    #[arg(long, default_value_t = 0.05)]
    replays: f64,
    /// How busy a core is meant to be.
    #[arg(long, default_value_t = 0.6)]
    busy: f64,
    #[command(flatten)]
    costs: Costs,
    /// Tenants; a tenant lives in one cell.
    #[arg(long, default_value_t = 10_000)]
    tenants: usize,
    /// How unequal they are: the nth largest has 1/n^s of the largest one's requests.
    #[arg(long, default_value_t = 0.8)]
    skew: f64,
    /// Decides every draw.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests that are simulated at each rate.
    #[arg(long, default_value_t = 200_000)]
    requests: usize,
}

/// Processor time, and what a store takes.
#[derive(Clone, Debug, Args)]
pub struct Costs {
    /// Of the gateway, in microseconds a request.
    #[arg(long, default_value_t = 110.0)]
    gateway_us: f64,
    /// Of the idempotency service, for Reserve and Complete together.
    #[arg(long, default_value_t = 75.0)]
    idem_us: f64,
    /// Of the orders service.
    #[arg(long, default_value_t = 50.0)]
    orders_us: f64,
    /// Of a Postgres, in microseconds a row that is reserved or completed.
    #[arg(long, default_value_t = 28.0)]
    idem_row_us: f64,
    /// Of a Postgres, in microseconds an order.
    #[arg(long, default_value_t = 165.0)]
    order_row_us: f64,
    /// A statement and its durable commit, whatever it carries, in microseconds.
    #[arg(long, default_value_t = 1500.0)]
    commit_us: f64,
    /// Cores of one Postgres.
    #[arg(long, default_value_t = 16)]
    store_cores: usize,
    /// A message between two machines, in microseconds.
    #[arg(long, default_value_t = 150.0)]
    network_us: f64,
}

// === impl Simulate ===

impl Simulate {
    /// A table, a line a rate.
    pub fn run(&self) -> String {
        let mut table = String::from(
            "| keyed requests/s | cells | busiest cell | gateway cores | idem cores | orders cores | p50 ms | p99 ms | p99.9 ms |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for &rate in &self.rates {
            let need = size(rate, self);
            let times = simulate(&self.path(&need), need.busiest, self.requests, self.seed);
            let at = |percent: f64| times.value_at_percentile(percent) as f64 / 1000.0;
            writeln!(
                table,
                "| {rate:.0} | {} | {:.0} | {} | {} | {} | {:.1} | {:.1} | {:.1} |",
                need.cells,
                need.busiest,
                need.gateway_cores,
                need.idem_cores,
                need.orders_cores,
                at(50.0),
                at(99.0),
                at(99.9)
            )
            .expect("a string takes everything");
        }
        table
    }

    /// The stations of one cell, in the order in which a fresh request passes them.
    fn path(&self, need: &Need) -> Vec<Step> {
        let Costs { gateway_us, idem_us, orders_us, idem_row_us, order_row_us, commit_us, network_us, .. } = self.costs;
        let part = |cores: usize| (cores / need.cells).max(1);
        let [gateway, idem, orders] = [need.gateway_cores, need.idem_cores, need.orders_cores].map(part);
        let store =
            |row_us: f64| Station::batches(self.flights(), 256, commit_us, row_us / self.costs.store_cores as f64);
        let stations = [
            Station::cores(gateway, gateway_us),
            Station::cores(idem, idem_us),
            store(idem_row_us),
            Station::cores(orders, orders_us),
            store(order_row_us),
        ];
        let [at_gateway, at_idem, idem_store, at_orders, orders_store] = [0, 1, 2, 3, 4];
        let route = [
            (at_gateway, 0.5),
            (at_idem, 0.5),
            (idem_store, 1.0),
            (at_gateway, 0.2),
            (at_orders, 1.0),
            (orders_store, 1.0),
            (at_gateway, 0.2),
            (at_idem, 0.5),
            (idem_store, 1.0),
            (at_gateway, 0.1),
        ];
        Step::along(&stations, &route, network_us)
    }

    /// Two of each replica: one statement plans while the other commits.
    fn flights(&self) -> usize {
        4
    }

    /// How many requests a second the busiest of so many cells gets, as a share of all.
    pub(crate) fn busiest_share(&self, cells: usize) -> f64 {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut load = vec![0.0; cells];
        for nth in 1..=self.tenants {
            load[random.random_range(0..cells)] += (nth as f64).powf(-self.skew);
        }
        let all: f64 = load.iter().sum();
        load.into_iter().fold(0.0, f64::max) / all
    }
}
