//! Placing an order: seats are held, prices frozen, tickets named.
//!
//! Orders that wait are placed together ([`place_orders`](crate::place_orders)); each is told its own fate.

use std::sync::Arc;

use chassis::deadline::Deadline;
use database::{Database, DatabaseError};
use fault_point::fault_point;
use futures::{
    FutureExt as _,
    future::{Either, join_all, ready},
};
use lane::{Failure as _, Lane, Load};
use tracing::{Instrument as _, Span};

use crate::{
    entry::Call,
    error::OrdersError,
    operation_id::OrderId,
    outcome::{Answer, Outcome},
    place_orders::{self, Fate},
    shop::{SWEEPS_MAX, Settings, Shop, within},
    stock::Seats,
    trip::{self, Passenger},
};

/// What is placed in one transaction at most: the bytes of the load are seats here. Enough to make its statements cheap, few enough to
/// hold a hot ticket type only for a moment.
const LOAD: Load = Load { questions: 128, bytes: 2500 };

/// Transactions at a time: two would wait for each other at a hot ticket type, and each would carry half.
const FLIGHTS: usize = 1;

/// An order to place. Always keyed: its id follows from the operation.
#[derive(Clone, Debug)]
pub struct PlaceOrder {
    /// Who asks.
    pub call: Call,
    /// The order that this operation places.
    pub order: OrderId,
    /// The venue of all its types.
    pub venue: String,
    /// What is ordered, in the buyer's sequence.
    pub seats: Vec<Seats>,
}

/// An order that waits to be placed.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) ask: Arc<PlaceOrder>,
    pub(crate) deadline: Option<Deadline>,
    span: Span,
}

/// Where orders wait for each other.
pub(crate) type Orders = Lane<Waiting, Fate, OrdersError>;

impl Shop {
    /// Holds the seats of an order for `--hold-ttl`, all or none, by its deadline.
    pub async fn place_order(&self, ask: PlaceOrder, deadline: Option<Deadline>) -> Result<Answer, OrdersError> {
        self.place(Waiting::new(ask, deadline), None).await
    }

    /// Places orders that came together, so that they need not find each other; each has its own answer, and its own deadline.
    pub(crate) async fn place_orders(&self, orders: Vec<Waiting>) -> Vec<Result<Answer, OrdersError>> {
        let loads = loads(orders).into_iter().map(|load| self.place_load(load));
        join_all(loads).await.into_iter().flatten().collect()
    }

    async fn place_load(&self, load: Vec<Waiting>) -> Vec<Result<Answer, OrdersError>> {
        match within(trip::last_deadline(&load), self.carry(load.clone())).await {
            Ok(fates) => {
                let ends = load.into_iter().zip(fates).map(|(waiting, fate)| match fate {
                    // Nearly all: the long way of the others is not carried along for them.
                    Fate::Answered(answer) => Either::Left(ready(Ok(counted(answer)))),
                    fate => Either::Right(self.place(waiting, Some(fate)).boxed()),
                });
                join_all(ends).await
            }
            // Of one that is not known: each is asked for alone.
            Err(error) if error.is_of_one() => {
                join_all(load.into_iter().map(|waiting| self.place(waiting, None))).await
            }
            Err(error) => load.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Places one order, of which something may be known already, by its deadline.
    async fn place(&self, waiting: Waiting, fate: Option<Fate>) -> Result<Answer, OrdersError> {
        let answer = match fate {
            // What is answered is answered, however late it has become.
            Some(Fate::Answered(answer)) => answer,
            fate => within(waiting.deadline, self.follow(&waiting, fate)).await?,
        };
        Ok(counted(answer))
    }

    /// Lets an order come again until it has its answer.
    async fn follow(&self, waiting: &Waiting, mut fate: Option<Fate>) -> Result<Answer, OrdersError> {
        let mut sweeps = 0;
        while sweeps < SWEEPS_MAX {
            match fate.take() {
                Some(Fate::Answered(answer)) => return Ok(answer),
                Some(Fate::Failed(error)) => return Err(error),
                Some(Fate::HoldsOver(ticket_type)) => {
                    sweeps += 1;
                    self.sweep_type(&ticket_type).await?;
                }
                // Each time one call of the operation gets its answer, so its turn comes.
                Some(Fate::Again) | None => {}
            }
            fate = self.carry(vec![waiting.clone()]).await?.pop();
        }
        Err(DatabaseError::Conflict.into())
    }

    async fn carry(&self, orders: Vec<Waiting>) -> Result<Vec<Fate>, OrdersError> {
        fault_point!("place order: line up" => Err(DatabaseError::Conflict.into()));
        let fates = self.orders.carry(orders).await?;
        fault_point!("place order: placed" => Err(DatabaseError::CommitUnknown.into()));
        Ok(fates)
    }
}

fn counted(answer: Answer) -> Answer {
    if let (Some(Outcome::Order(_)), false) = (&answer.outcome, answer.is_replay) {
        metrics::counter!("orders_placed_total").increment(1);
    }
    answer
}

/// The lane of a shop over this store.
pub(crate) fn lane(store: &Database, settings: &Settings) -> Orders {
    let (store, hold_ttl) = (store.clone(), settings.hold_ttl);
    Lane::new(FLIGHTS, LOAD, Waiting::seats, move |orders: Vec<Waiting>| {
        let store = store.clone();
        Box::pin(async move {
            let (span, last) = (trip_span(&orders), trip::last_deadline(&orders));
            // Whoever waits here is answered at its own deadline; after the last of them nobody waits, and it is rolled back.
            within(last, place_orders::place(&store, orders, hold_ttl)).instrument(span).await
        })
    })
}

/// Parts of these orders, in their sequence, each of which may travel together.
fn loads(orders: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let (mut loads, mut seats) = (Vec::<Vec<Waiting>>::new(), 0);
    for waiting in orders {
        seats += waiting.seats();
        match loads.last_mut() {
            Some(load) if load.len() < LOAD.questions && seats <= LOAD.bytes => load.push(waiting),
            _ => {
                seats = waiting.seats();
                loads.push(vec![waiting]);
            }
        }
    }
    loads
}

impl Waiting {
    /// An order asked for in the current span.
    pub(crate) fn new(ask: PlaceOrder, deadline: Option<Deadline>) -> Self {
        Self { ask: Arc::new(ask), deadline, span: Span::current() }
    }

    fn seats(&self) -> usize {
        self.ask.seats.iter().map(|seats| seats.quantity as usize).sum()
    }
}

impl Passenger for Waiting {
    fn span(&self) -> &Span {
        &self.span
    }

    fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }
}

/// In the trace of the first, and linked from those of the others.
fn trip_span(orders: &[Waiting]) -> Span {
    let span = tracing::info_span!(parent: trip::parent(orders), "place orders", orders = orders.len() as i64);
    trip::linked(span, orders)
}
