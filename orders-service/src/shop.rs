//! The shop: what every use case shares.

use std::{
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use chassis::deadline::Deadline;
use database::{BoxFuture, Database, DatabaseError, Tx};
use futures::{FutureExt as _, future::Either};
use tokio::sync::Notify;

use crate::{
    acquirer::{Acquirer, road::Road},
    begin_payment::{self, Beginnings},
    conclude::{self, Verdicts},
    error::OrdersError,
    place_order::{self, Orders},
    receive_events::{self, Events},
};

/// How often work is begun again because holds that are over were in its way. Each round sweeps them first, so only a flood of holds
/// lapsing at this very moment can use them up.
pub(crate) const SWEEPS_MAX: u32 = 32;

/// What is left for writing down what the acquirer said: a fifth of the time, at most this.
const WRITING: Duration = Duration::from_millis(500);

/// What the use cases are told by the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long seats are held.
    pub hold_ttl: Duration,
    /// How long the acquirer may take to answer.
    pub acquirer_timeout: Duration,
    /// The secret shared with the acquirer for its webhooks.
    pub webhook_secret: Vec<u8>,
    /// Where payment links lead.
    pub payment_link_base: String,
}

/// The use cases: rows on one side, the acquirer on the other. Clones share both.
#[derive(Clone)]
pub struct Shop {
    pub(crate) store: Database,
    pub(crate) acquirer: Road,
    pub(crate) settings: Arc<Settings>,
    /// Wakes the refund outbox after a commit that put something into it.
    pub(crate) refund_ordered: Arc<Notify>,
    /// Told when a call leaves a payment open, which falls due a moment later.
    pub(crate) left_open: Arc<Notify>,
    /// Where orders to be placed wait for each other.
    pub(crate) orders: Orders,
    /// Where payments to begin wait for each other.
    pub(crate) beginnings: Beginnings,
    /// Where verdicts about charges wait for each other.
    pub(crate) verdicts: Verdicts,
    /// Where events of the acquirer wait for each other.
    pub(crate) events: Events,
}

impl Shop {
    /// Opens the shop over a store and an acquirer.
    pub fn new(store: Database, acquirer: Arc<dyn Acquirer>, settings: Settings) -> Self {
        let orders = place_order::lane(&store, &settings);
        let beginnings = begin_payment::lane(&store, &settings);
        let (verdicts, events) = (conclude::lane(&store), receive_events::lane(&store));
        let (acquirer, settings) = (Road::to(acquirer), Arc::new(settings));
        Self {
            store,
            acquirer,
            settings,
            refund_ordered: Arc::default(),
            left_open: Arc::default(),
            orders,
            beginnings,
            verdicts,
            events,
        }
    }

    /// Runs `work` as one transaction, sweeping holds that are over when it says that they are in its way.
    pub(crate) async fn act<T, W>(&self, name: &'static str, work: W) -> Result<T, OrdersError>
    where
        T: Send + 'static,
        W: for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, OrdersError>> + Clone + Send + Sync + 'static,
    {
        for _ in 0..SWEEPS_MAX {
            match self.store.transact(name, work.clone()).await {
                Err(OrdersError::HoldsOver(ticket_type)) => self.sweep_type(&ticket_type).await?,
                done => return done,
            }
        }
        Err(DatabaseError::Conflict.into())
    }

    /// How long the acquirer may be waited for, with `deadline` set by a caller: some of the time is kept back for writing the answer.
    pub(crate) fn patience(&self, deadline: Option<Deadline>) -> Result<Duration, OrdersError> {
        let Some(left) = deadline.map(|deadline| deadline.remaining()) else {
            return Ok(self.settings.acquirer_timeout);
        };
        let left = left.saturating_sub(WRITING.min(left / 5));
        if left.is_zero() { Err(OrdersError::Deadline) } else { Ok(left.min(self.settings.acquirer_timeout)) }
    }
}

/// Does the work of a caller by its deadline, or drops it: a transaction is then rolled back unless its commit is on the way.
pub(crate) fn within<T, W>(
    deadline: Option<Deadline>,
    work: W,
) -> impl Future<Output = Result<T, OrdersError>> + use<T, W>
where
    W: Future<Output = Result<T, OrdersError>>,
{
    match deadline {
        None => Either::Left(work),
        Some(deadline) if deadline.is_over() => Either::Right(Either::Left(ready(Err(OrdersError::Deadline)))),
        Some(deadline) => {
            let done = tokio::time::timeout_at(deadline.instant(), work);
            Either::Right(Either::Right(done.map(|done| done.unwrap_or(Err(OrdersError::Deadline)))))
        }
    }
}

/// Counts what somebody must look at, and says so in the log.
pub(crate) fn alert(kind: &'static str, detail: &str) {
    metrics::counter!("orders_alerts_total", "kind" => kind).increment(1);
    tracing::error!(alert = kind, detail, "somebody must look");
}
