//! Events of the acquirer that wait are kept, and applied, in one transaction, with the same few statements whatever their number.
//!
//! One that says what is known, or approves a payment as nearly all do, is applied here. Any other is only kept here; it is applied in a
//! transaction of its own, by the same call, or by the next round should that call not get so far.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use chassis::deadline::Deadline;
use database::{Database, Tx};
use lane::{Lane, Load};
use tracing::{Instrument as _, Span};

use crate::{
    error::OrdersError,
    operation_id::PaymentId,
    order::OrderStatus,
    payment::Settlement,
    settle_payments::{self, Heard},
    shop::within,
    store::{
        events::{self, Event},
        payments::{self, PaymentRow},
    },
    trip::{self, Passenger},
    webhook::{Effect, about},
};

/// What is kept in one transaction at most.
const LOAD: Load = Load { questions: 128, bytes: 1 << 20 };

/// Transactions at a time: two would wait for each other at a hot ticket type, and each would carry half.
const FLIGHTS: usize = 1;

/// An event that waits to be kept.
#[derive(Clone)]
pub(crate) struct Waiting {
    event: Arc<Event>,
    body: Bytes,
    deadline: Option<Deadline>,
    span: Span,
}

/// What became of an event.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is kept for the first time, and done with for now.
    Done(Effect),
    /// It is kept, and to be applied alone.
    Alone {
        /// It had not been kept before.
        is_new: bool,
    },
    /// Nobody waits for it any more, and it is not kept.
    Failed(OrdersError),
}

/// Where events wait for each other.
pub(crate) type Events = Lane<Waiting, Fate, OrdersError>;

/// The lane of a shop over this store.
pub(crate) fn lane(store: &Database) -> Events {
    let store = store.clone();
    Lane::new(
        FLIGHTS,
        LOAD,
        |waiting: &Waiting| waiting.body.len(),
        move |events: Vec<Waiting>| {
            let store = store.clone();
            Box::pin(async move {
                let (span, last) = (trip_span(&events), trip::last_deadline(&events));
                // Past the last deadline nobody waits, and it is rolled back.
                within(last, receive(&store, events)).instrument(span).await
            })
        },
    )
}

async fn receive(store: &Database, batch: Vec<Waiting>) -> Result<Vec<Fate>, OrdersError> {
    let batch: Arc<[Waiting]> = batch.into();
    store
        .transact("receive events", move |tx| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { receive_all(tx, &batch).await })
        })
        .await
}

async fn receive_all(tx: &mut Tx<'_>, batch: &[Waiting]) -> Result<Vec<Fate>, OrdersError> {
    let mut fates: Vec<Fate> = batch.iter().map(|_| Fate::Alone { is_new: false }).collect();
    let mut firsts = BTreeMap::<&str, usize>::new();
    for (place, waiting) in batch.iter().enumerate() {
        if waiting.is_over() {
            fates[place] = Fate::Failed(OrdersError::Deadline);
        } else {
            firsts.entry(&waiting.event.id).or_insert(place);
        }
    }
    let rows = firsts.values().map(|place| (&*batch[*place].event, &batch[*place].body[..]));
    let new = events::insert_all(tx, rows).await?;
    let new: Vec<usize> = firsts.into_iter().filter(|(id, _)| new.contains(*id)).map(|(_, place)| place).collect();
    let named: BTreeSet<PaymentId> = new.iter().filter_map(|place| batch[*place].event.payment_id()).collect();
    let payments = payments::find_all(tx, &named).await?;

    let (mut applied, mut words) = (Vec::new(), Vec::new());
    for place in new {
        fates[place] = match judge(&batch[place].event, &payments) {
            Judged::Waits => Fate::Done(Effect::None),
            Judged::Known => {
                applied.push(place);
                Fate::Done(Effect::None)
            }
            Judged::Says(heard) => {
                words.push((place, heard));
                Fate::Alone { is_new: true }
            }
            Judged::Odd => Fate::Alone { is_new: true },
        };
    }
    let (places, words): (Vec<_>, Vec<_>) = words.into_iter().unzip();
    let settled = settle_payments::apply_all(tx, &words).await?;
    for ((place, word), settled) in places.into_iter().zip(words).zip(settled) {
        if let Some(settled) = settled {
            applied.push(place);
            fates[place] = Fate::Done(Effect::Applied(word.payment.id, settled));
        }
    }
    events::applied_all(tx, applied.iter().map(|place| batch[*place].event.id.as_str())).await?;
    Ok(fates)
}

/// What is to be done with a new event.
enum Judged {
    /// Nothing before its payment is there.
    Waits,
    /// Nothing: it says what is known for good.
    Known,
    /// A word to be applied.
    Says(Heard),
    /// Whatever a transaction of its own makes of it.
    Odd,
}

fn judge(event: &Event, payments: &BTreeMap<PaymentId, PaymentRow>) -> Judged {
    let Some(verdict) = event.verdict() else { return Judged::Odd };
    let Some(payment) = event.payment_id().and_then(|id| payments.get(&id)) else { return Judged::Waits };
    if !about(event, payment) {
        return Judged::Odd;
    }
    if payment.status.is_undecided() {
        return Judged::Says(Heard { payment: payment.clone(), verdict });
    }
    // What is decided stays so, and what a word does to it then does not depend on its order.
    match payment.status.settle(OrderStatus::Paid, verdict) {
        Settlement::Nothing => Judged::Known,
        _ => Judged::Odd,
    }
}

impl Waiting {
    /// An event received in the current span.
    pub(crate) fn new(event: Event, body: Bytes, deadline: Option<Deadline>) -> Self {
        Self { event: Arc::new(event), body, deadline, span: Span::current() }
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
fn trip_span(events: &[Waiting]) -> Span {
    let span = tracing::info_span!(parent: trip::parent(events), "receive events", events = events.len() as i64);
    trip::linked(span, events)
}
