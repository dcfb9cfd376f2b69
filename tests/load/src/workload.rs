//! What is measured, one file each.

use clap::ValueEnum;

use crate::{bar::Report, bench::Bench};

pub mod baselines;
pub mod idle;
pub mod keyed;
pub mod latency;
pub mod loaded;
pub mod memory;
pub mod orders;
pub mod pairs;
pub mod payments;
pub mod purge;
pub mod replays;
pub mod reserving;
pub mod soak;
pub mod table_size;
pub mod tenants;
pub mod tracing;
pub mod waiters;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// Processor time and writes of a system that nobody calls. First, when Postgres has nothing left to do from any other.
    Idle,
    /// Reserve and Complete over gRPC, every key fresh.
    Pairs,
    /// POST /v1/orders, everybody wants the same ticket type.
    OrdersHot,
    /// POST /v1/orders, a thousand ticket types.
    OrdersSpread,
    /// POST /v1/payments, with an acquirer that answers at once.
    Payments,
    /// POST /v1/orders that were answered before.
    ReplayRest,
    /// Reserve on completed keys.
    ReplayGrpc,
    /// Fresh pairs and replays on a large table and on a small one.
    TableSize,
    /// Replays over REST with ten thousand tenants and with two.
    Tenants,
    /// POST /v1/orders while expired keys are purged.
    Purge,
    /// A hundred callers who wait for one answer.
    Waiters,
    /// Memory of each service, idle and with 5,000 requests in flight.
    Memory,
    /// Memory of each service and the size of the table of keys, over many retentions.
    Soak,
    /// POST /v1/orders without a collector, with one, and with one that is gone.
    Tracing,
    /// What a key adds to a request at a tenth of the highest rate.
    Latency,
}

// === impl Workload ===

impl Workload {
    /// All of them, in the order of the table.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Measures it.
    pub async fn run(self, bench: &mut Bench) -> anyhow::Result<Report> {
        match self {
            Self::Pairs => pairs::run(bench).await,
            Self::OrdersHot => orders::hot(bench).await,
            Self::OrdersSpread => orders::spread(bench).await,
            Self::Payments => payments::run(bench).await,
            Self::ReplayRest => replays::rest(bench).await,
            Self::ReplayGrpc => replays::grpc(bench).await,
            Self::TableSize => table_size::run(bench).await,
            Self::Tenants => tenants::run(bench).await,
            Self::Purge => purge::run(bench).await,
            Self::Waiters => waiters::run(bench).await,
            Self::Memory => memory::run(bench).await,
            Self::Soak => soak::run(bench).await,
            Self::Idle => idle::run(bench).await,
            Self::Tracing => tracing::run(bench).await,
            Self::Latency => latency::run(bench).await,
        }
    }
}
