//! The beginning of a payment: it is recorded, or the answer is there.
//!
//! Payments that wait begin together ([`begin_payments`](crate::begin_payments)); one that was begun before, or meets another in the same
//! batch, begins alone.

use std::{sync::Arc, time::Duration};

use chassis::deadline::Deadline;
use database::{Database, DatabaseError, Tx};
use fault_point::fault_point;
use lane::{Failure, Lane, Load, Lost};
use tracing::{Instrument as _, Span};

use crate::{
    begin_payments::{self, Fate},
    entry::{self, Entry},
    error::OrdersError,
    order::OrderState,
    outcome::{Answer, Refusal, RefusalReason},
    pay::Pay,
    payment::PaymentStatus,
    shop::{Settings, Shop, within},
    store::{
        operations, orders,
        payments::{self, PaymentRow},
    },
    timestamp::Timestamp,
    trip::{self, Passenger},
};

/// What begins in one transaction at most.
const LOAD: Load = Load { questions: 128, bytes: usize::MAX };

/// Transactions at a time: two would each carry half.
const FLIGHTS: usize = 1;

/// What the first transaction came to.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The answer is there.
    Answered(Answer),
    /// Another call with this token is at work.
    Running,
    /// Recorded: to be sent.
    Send(PaymentRow, Sending),
    /// An earlier try was given up, and the order can be paid no more: whether its charge has landed is not known here.
    GivenUp(PaymentRow),
}

/// Whether the acquirer may have been sent this payment before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Nobody can have sent it.
    First,
    /// Somebody may have, and that charge may still be on its way.
    Again,
}

/// What is known of an earlier try of the payment that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// Nothing.
    NotAsked,
    /// The acquirer has been asked a moment ago and has no charge.
    NotFound,
}

/// A payment that waits to begin.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) ask: Arc<Pay>,
    deadline: Option<Deadline>,
    span: Span,
}

/// Where payments wait for each other.
pub(crate) type Beginnings = Lane<Waiting, Fate, TripFailure>;

/// Why a trip failed. Asked again, a call whose beginning was committed would be taken for a repeat of itself: after a failure that leaves
/// that open, everybody aboard is told of it.
#[derive(Debug)]
pub(crate) struct TripFailure(OrdersError);

impl Shop {
    /// Records a payment before it is sent, with whatever else waits to begin.
    pub(crate) async fn begin(&self, waiting: &Waiting) -> Result<Begun, OrdersError> {
        fault_point!("begin payment: line up" => Err(DatabaseError::Conflict.into()));
        let fate = self.beginnings.carry_one(waiting.clone()).await.map_err(|TripFailure(error)| error)?;
        fault_point!("begin payment: carried" => Err(DatabaseError::CommitUnknown.into()));
        match fate {
            Fate::Begun(begun) => Ok(begun),
            Fate::Failed(error) => Err(error),
            Fate::Alone => self.begin_alone(waiting, GivenUp::NotAsked).await,
        }
    }

    /// Begins anew with a payment that was given up, and of which the acquirer has no charge.
    pub(crate) async fn begin_given_up(&self, waiting: &Waiting) -> Result<Begun, OrdersError> {
        self.begin_alone(waiting, GivenUp::NotFound).await
    }

    async fn begin_alone(&self, waiting: &Waiting, given_up: GivenUp) -> Result<Begun, OrdersError> {
        let (ask, settings) = (Arc::clone(&waiting.ask), Arc::clone(&self.settings));
        self.act("begin payment", move |tx| {
            let (ask, settings) = (Arc::clone(&ask), Arc::clone(&settings));
            Box::pin(async move { begin(tx, &ask, given_up, settings.hold_ttl, settings.acquirer_timeout).await })
        })
        .await
    }
}

/// The lane of a shop over this store.
pub(crate) fn lane(store: &Database, settings: &Settings) -> Beginnings {
    let (store, hold_ttl, acquirer_timeout) = (store.clone(), settings.hold_ttl, settings.acquirer_timeout);
    Lane::new(
        FLIGHTS,
        LOAD,
        |_| 0,
        move |payments: Vec<Waiting>| {
            let store = store.clone();
            Box::pin(async move {
                let (span, last) = (trip_span(&payments), trip::last_deadline(&payments));
                // Whoever waits here is answered at its own deadline; after the last of them nobody waits, and it is rolled back.
                let begun = within(last, begin_payments::begin(&store, payments, hold_ttl, acquirer_timeout));
                begun.instrument(span).await.map_err(TripFailure)
            })
        },
    )
}

impl Waiting {
    /// A payment asked for in the current span.
    pub(crate) fn new(ask: Pay, deadline: Option<Deadline>) -> Self {
        Self { ask: Arc::new(ask), deadline, span: Span::current() }
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

impl Failure for TripFailure {
    fn is_of_one(&self) -> bool {
        let may_be_committed =
            matches!(self.0, OrdersError::Lost(_) | OrdersError::Database(DatabaseError::CommitUnknown));
        !may_be_committed && self.0.is_of_one()
    }

    fn share(shared: &Arc<Self>) -> Self {
        Self(shared.0.clone())
    }

    fn lost(how: Lost) -> Self {
        Self(how.into())
    }
}

/// In the trace of the first, and linked from those of the others.
fn trip_span(payments: &[Waiting]) -> Span {
    let span = tracing::info_span!(parent: trip::parent(payments), "begin payments", payments = payments.len() as i64);
    trip::linked(span, payments)
}

async fn begin(
    tx: &mut Tx<'_>,
    ask: &Pay,
    given_up: GivenUp,
    hold_ttl: Duration,
    acquirer_timeout: Duration,
) -> Result<Begun, OrdersError> {
    match entry::enter(tx, &ask.call).await? {
        Entry::Act => {}
        Entry::Answered(answer) => return Ok(Begun::Answered(answer)),
        Entry::Running => return Ok(Begun::Running),
    }
    let known = payments::find(tx, ask.grant.operation.payment()).await?;
    match known.as_ref().map(|payment| payment.status) {
        // Its charge may be on its way, so whatever the order became since, this payment is to be decided: the guards are behind it.
        Some(PaymentStatus::Started | PaymentStatus::Pending) | None => {}
        Some(PaymentStatus::Closed) => {}
        Some(_) => return Err(OrdersError::Corrupt("a decided payment without its answer")),
    }
    if let Some(open) = known.as_ref().filter(|payment| payment.status.is_open()) {
        operations::begin(tx, ask.grant).await?;
        return Ok(Begun::Send(open.clone(), Sending::Again));
    }
    let order = match ask.order {
        Some(id) => orders::lock_of(tx, &ask.call.tenant, id).await?,
        None => None,
    };
    let Some(order) = order else { return refuse(tx, ask, RefusalReason::NotFound.plain()).await };
    let state = OrderState {
        status: order.status,
        hold: order.hold(tx.now()),
        has_open_payment: payments::has_open(tx, order.id).await?,
    };
    if let Err(reason) = state.may_be_paid() {
        return match known {
            Some(closed) if given_up == GivenUp::NotAsked => Ok(Begun::GivenUp(closed)),
            Some(_) => refuse(tx, ask, after_giving_up(reason)).await,
            None => refuse(tx, ask, reason.plain()).await,
        };
    }
    let (payment, sending) = match known {
        Some(closed) => {
            payments::reopen(tx, closed.id, acquirer_timeout).await?;
            (PaymentRow { status: PaymentStatus::Started, ..closed }, Sending::Again)
        }
        None => {
            let payment = new_payment(ask, &order, Timestamp(tx.now()).plus(acquirer_timeout));
            payments::start(tx, &payment).await?;
            (payment, Sending::First)
        }
    };
    orders::hold_on(tx, order.id, hold_ttl).await?;
    operations::begin(tx, ask.grant).await?;
    Ok(Begun::Send(payment, sending))
}

async fn refuse(tx: &mut Tx<'_>, ask: &Pay, refusal: Refusal) -> Result<Begun, OrdersError> {
    entry::leave(tx, &ask.call, Answer::refused(refusal)).await.map(Begun::Answered)
}

/// The acquirer has no charge now; one that is still on its way goes back when it lands.
fn after_giving_up(reason: RefusalReason) -> Refusal {
    let Refusal { reason, detail } = reason.plain();
    reason.because(format!("{detail}; an earlier try was given up: should its charge still arrive, it is refunded"))
}

/// The row of a payment about to be sent. The watch asks for it only when the call that sends it must have ended.
pub(crate) fn new_payment(ask: &Pay, order: &orders::OrderRow, next_ask_at: Timestamp) -> PaymentRow {
    PaymentRow {
        id: ask.grant.operation.payment(),
        operation: ask.grant.operation,
        tenant: order.tenant.clone(),
        order: order.id,
        amount: order.total.clone(),
        method: ask.method.clone(),
        status: PaymentStatus::Started,
        closed_at: None,
        next_ask_at: Some(next_ask_at),
        asks: 0,
        last_word: None,
    }
}
