//! Orders that wait are placed by one call together; a lone one is placed by a call of its own, at once.

use chassis::{deadline::Deadline, tasks::Tasks, trace};
use futures::{FutureExt as _, future::join_all};
use idem_proto::orders::v1::{self as proto, place_orders_outcome::Outcome};
use lane::{Failure, Lane, Load, Lost};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tonic::{Code, Status};
use tracing::{Instrument as _, Span};

use super::{CallError, gate::Gate, wire::Wire};

/// Calls at a time: while one is answered, the next is on its way.
const FLIGHTS: usize = 2;

/// What goes into one call at most; the bytes of the load are seats here. The answer has a ticket for each, and stays well below the
/// largest message.
const LOAD: Load = Load { questions: 128, bytes: 2500 };

/// How long a call keeps its place in the lane. One that takes longer is stuck, at worst on a replica that is gone: it steps aside, and
/// those who wait behind it go on by another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Places orders.
#[derive(Clone)]
pub(super) struct Placing {
    lane: Lane<Asked, Told, CallError>,
}

type Placed = Result<Option<proto::Answer>, CallError>;

/// What became of an order: known, or to be known when a call that has stepped aside is over.
enum Told {
    Now(Placed),
    Later(oneshot::Receiver<Placed>),
}

/// An order that waits.
#[derive(Clone)]
struct Asked {
    message: proto::PlaceOrderRequest,
    deadline: Deadline,
    /// Stopped when its caller is answered before it has left.
    gate: Gate,
    span: Span,
    trace_context: String,
}

// === impl Placing ===

impl Placing {
    pub(super) fn new(wire: Wire) -> Self {
        let carry = move |orders: Vec<Asked>| carry(wire.clone(), orders).map(Ok).boxed();
        Self { lane: Lane::new(FLIGHTS, LOAD, Asked::seats, carry) }
    }

    /// Places one order with whatever else waits, by its deadline.
    pub(super) async fn place(&self, message: proto::PlaceOrderRequest, deadline: Deadline) -> Placed {
        let (gate, span) = (Gate::default(), Span::current());
        let trace_context = trace::current_traceparent().unwrap_or_default();
        let asked = Asked { message, deadline, gate: gate.clone(), span, trace_context };
        let told = async { Ok(self.lane.carry_one(asked).await?.placed().await) };
        let placed = tokio::time::timeout_at(deadline.instant(), told).await;
        placed.unwrap_or_else(|_| Err(super::unanswered(&gate, Status::deadline_exceeded("no answer in time"))))?
    }
}

/// One trip, as long as it is worth waiting for.
async fn carry(wire: Wire, orders: Vec<Asked>) -> Vec<Told> {
    let count = orders.len();
    let mut trip = async move { place(&wire, orders).await }.boxed();
    if let Ok(placed) = tokio::time::timeout(PATIENCE, &mut trip).await {
        return placed.into_iter().map(Told::Now).collect();
    }
    let (tell, told): (Vec<_>, Vec<_>) = (0..count).map(|_| oneshot::channel()).unzip();
    let aside = async move {
        for (tell, placed) in tell.into_iter().zip(trip.await) {
            // Whoever has left needs no answer.
            let _ = tell.send(placed);
        }
    };
    // Who must be waited for at the end waits for the answer.
    drop(Tasks::new().spawn("slow orders", aside));
    told.into_iter().map(Told::Later).collect()
}

/// An outcome for each order.
async fn place(wire: &Wire, mut orders: Vec<Asked>) -> Vec<Placed> {
    if let [_] = orders[..] {
        return vec![place_alone(wire, orders.remove(0)).await];
    }
    // From here on they leave; whoever has been answered meanwhile stays.
    let is_leaving: Vec<bool> = orders.iter().map(|asked| !asked.deadline.is_over() && asked.gate.pass()).collect();
    let leaving: Vec<_> =
        orders.into_iter().zip(&is_leaving).filter(|(_, leaves)| **leaves).map(|(it, _)| it).collect();
    let mut placed = place_together(wire, leaving).await.into_iter();
    let stayed = || Err(CallError::NothingHappened(Status::cancelled("stopped before it was sent")));
    is_leaving.into_iter().map(|leaves| if leaves { placed.next() } else { None }.unwrap_or_else(stayed)).collect()
}

async fn place_alone(wire: &Wire, asked: Asked) -> Placed {
    let Asked { message, deadline, gate, span, .. } = asked;
    let call = wire.call_through(gate, message, deadline, async |mut c, r| c.place_order(r).await);
    Ok(call.instrument(span).await?.answer)
}

async fn place_together(wire: &Wire, orders: Vec<Asked>) -> Vec<Placed> {
    let Some(last) = orders.iter().map(|asked| asked.deadline).max() else { return Vec::new() };
    let aboard = || orders.iter().map(|asked| &asked.span);
    let host = trace::host_of(aboard());
    let span = tracing::info_span!(parent: host.clone(), "place orders", orders = orders.len() as i64);
    trace::connect(&span, aboard(), host.as_ref());
    let message = proto::PlaceOrdersRequest { items: orders.iter().map(Asked::item).collect() };
    let called = wire.call(message, last, async |mut c, r| c.place_orders(r).await).instrument(span).await;
    match called {
        Ok(answer) if answer.outcomes.len() == orders.len() => answer.outcomes.into_iter().map(read).collect(),
        Ok(_) => orders.iter().map(|_| Err(unreadable())).collect(),
        // A release that does not know this call, or a grant that does not: nothing was looked at.
        Err(CallError::NothingHappened(status))
            if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) =>
        {
            join_all(orders.into_iter().map(|asked| place_alone(wire, Asked { gate: Gate::default(), ..asked }))).await
        }
        Err(error) => orders.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// What one item came to, as it would have come alone.
fn read(outcome: proto::PlaceOrdersOutcome) -> Placed {
    match outcome.outcome {
        Some(Outcome::Response(response)) => Ok(response.answer),
        Some(Outcome::Failure(failure)) => {
            let code = Code::from_i32(failure.code);
            Err(CallError::from_answer(Status::with_details(code, failure.message, failure.details)))
        }
        None => Err(unreadable()),
    }
}

fn unreadable() -> CallError {
    CallError::Unknown(Status::internal("the orders service does not say what became of this order"))
}

// === impl Told ===

impl Told {
    async fn placed(self) -> Placed {
        match self {
            Self::Now(placed) => placed,
            Self::Later(told) => told.await.unwrap_or_else(|_| Err(CallError::lost(Lost::Panicked))),
        }
    }
}

// === impl Asked ===

impl Asked {
    fn seats(&self) -> usize {
        self.message.items.iter().map(|item| item.quantity as usize).sum()
    }

    fn item(&self) -> proto::PlaceOrdersItem {
        let left = super::with_margin(self.deadline.remaining());
        proto::PlaceOrdersItem {
            order: Some(self.message.clone()),
            trace_context: self.trace_context.clone(),
            timeout: left.try_into().ok(),
        }
    }
}

// === impl CallError ===

impl Failure for CallError {
    /// A trip always brings an outcome for each.
    fn is_of_one(&self) -> bool {
        false
    }

    fn share(shared: &Arc<Self>) -> Self {
        Self::clone(shared)
    }

    fn lost(how: Lost) -> Self {
        Self::Unknown(Status::internal(how.to_string()))
    }
}
