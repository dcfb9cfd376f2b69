//! Placing what waits in one transaction, with the same few statements whatever the number of orders.
//!
//! Each order has its own fate. One that does not fit, is stale or was answered before leaves the others as they are; what it would
//! need a transaction of its own for (seats of holds that are over, a repeat of an order in this very batch) it comes back for.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry as Place},
    sync::Arc,
    time::Duration,
};

use database::{Database, Tx};

use crate::{
    allotment::{self, Allotted},
    entry::{self, Entry},
    error::OrdersError,
    operation_id::{Grant, OperationId},
    order::Order,
    outcome::{Answer, Kind, Outcome, RefusalReason},
    place_order::Waiting,
    store::{
        operations::{self, Raise},
        orders, ticket_types,
    },
    timestamp::Timestamp,
    trip::Passenger as _,
};

/// What became of one order.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is answered.
    Answered(Answer),
    /// It alone failed.
    Failed(OrdersError),
    /// Seats of this ticket type are counted as held whose holds are over: to be swept, then it is to come again.
    HoldsOver(String),
    /// Another call of its operation is in this batch: it is to come again, when that one is through.
    Again,
}

/// An order of the batch, and under which grant it acts.
struct Act<'b> {
    place: usize,
    grant: Grant,
    waiting: &'b Waiting,
}

/// In the order of the ids, in which they are locked.
type Firsts<'b> = BTreeMap<OperationId, Act<'b>>;

/// The place of a repeat, and that of the call it repeats.
type Repeats = Vec<(usize, usize)>;

/// Places orders, and says what became of each. An error concerns all of them.
pub(crate) async fn place(store: &Database, batch: Vec<Waiting>, hold_ttl: Duration) -> Result<Vec<Fate>, OrdersError> {
    let batch: Arc<[Waiting]> = batch.into();
    store
        .transact("place orders", move |tx| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { place_all(tx, &batch, hold_ttl).await })
        })
        .await
}

async fn place_all(tx: &mut Tx<'_>, batch: &[Waiting], hold_ttl: Duration) -> Result<Vec<Fate>, OrdersError> {
    let mut fates: Vec<Option<Fate>> = batch.iter().map(|_| None).collect();
    let (firsts, repeats) = firsts(batch, &mut fates)?;
    let acts = enter_all(tx, firsts, &mut fates).await?;
    let acts = hold_all(tx, acts, &mut fates, hold_ttl).await?;
    leave_all(tx, &acts, &mut fates).await?;
    for (place, first) in repeats {
        fates[place] = Some(match &fates[first] {
            Some(Fate::Answered(answer)) => Fate::Answered(answer.clone()),
            _ => Fate::Again,
        });
    }
    fates.into_iter().map(|fate| fate.ok_or(OrdersError::Corrupt("an order without a fate"))).collect()
}

/// The first call of each operation, and the places of those that repeat one, each with its first. Any other call of the same operation
/// is to come again.
fn firsts<'b>(batch: &'b [Waiting], fates: &mut [Option<Fate>]) -> Result<(Firsts<'b>, Repeats), OrdersError> {
    let (mut firsts, mut repeats) = (Firsts::new(), Repeats::new());
    for (place, waiting) in batch.iter().enumerate() {
        let call = &waiting.ask.call;
        let grant = call.grant.ok_or(OrdersError::Corrupt("an order without a key"))?;
        match firsts.entry(grant.operation) {
            _ if waiting.is_over() => fates[place] = Some(Fate::Failed(OrdersError::Deadline)),
            Place::Vacant(vacant) => {
                vacant.insert(Act { place, grant, waiting });
            }
            Place::Occupied(first) if first.get().waiting.ask.call == *call => repeats.push((place, first.get().place)),
            Place::Occupied(_) => fates[place] = Some(Fate::Again),
        }
    }
    Ok((firsts, repeats))
}

/// Raises the tokens of all operations, and returns the orders that are to act, in their sequence.
async fn enter_all<'b>(
    tx: &mut Tx<'_>,
    firsts: Firsts<'b>,
    fates: &mut [Option<Fate>],
) -> Result<Vec<Act<'b>>, OrdersError> {
    let raises: Vec<Raise> =
        firsts.values().map(|act| Raise { grant: act.grant, identity: act.waiting.ask.call.identity() }).collect();
    let mut raised = operations::raise_all(tx, &raises).await?;
    let mut acts = Vec::with_capacity(raises.len());
    for (act, raise) in firsts.into_values().zip(&raises) {
        match raised.remove(&act.grant.operation) {
            Some(operation) => match entry::at(operation, act.grant) {
                Entry::Act => acts.push(act),
                Entry::Answered(answer) => fates[act.place] = Some(Fate::Answered(answer)),
                Entry::Running => {
                    let error = OrdersError::Corrupt("a transaction without steps was seen running");
                    fates[act.place] = Some(Fate::Failed(error));
                }
            },
            None => fates[act.place] = Some(Fate::Failed(entry::why_not(tx, raise).await?)),
        }
    }
    acts.sort_by_key(|act| act.place);
    Ok(acts)
}

/// Holds the seats of the orders that fit, in their sequence, and returns the answers to keep.
async fn hold_all<'b>(
    tx: &mut Tx<'_>,
    acts: Vec<Act<'b>>,
    fates: &mut [Option<Fate>],
    hold_ttl: Duration,
) -> Result<Vec<(Act<'b>, Answer)>, OrdersError> {
    let wanted: BTreeSet<&str> =
        acts.iter().flat_map(|act| &act.waiting.ask.seats).map(|seats| seats.ticket_type.as_str()).collect();
    let types = ticket_types::lock_all(tx, &wanted).await?;
    let created_at = Timestamp(tx.now());
    let mut stock = allotment::Stock::of(&types);
    let (mut answers, mut placed, mut short) = (Vec::with_capacity(acts.len()), Vec::new(), Vec::new());
    for act in acts {
        // Whoever was overtaken while its rows were held by somebody else gets nothing.
        if act.waiting.is_over() {
            fates[act.place] = Some(Fate::Failed(OrdersError::Deadline));
            continue;
        }
        match stock.allot(&act.waiting.ask) {
            Allotted::Held { items, total } => {
                let order = Order::placed(&act.waiting.ask, items, total, created_at, created_at.plus(hold_ttl));
                placed.push((act.waiting.ask.call.tenant.as_str(), order.clone()));
                answers.push((act, Answer::done(Outcome::Order(order))));
            }
            Allotted::Refused(refusal) => answers.push((act, Answer::refused(refusal))),
            Allotted::Short(ticket_type) => short.push((act, ticket_type)),
        }
    }
    let over = ticket_types::with_holds_over(tx, short.iter().map(|(_, id)| id.as_str()).collect()).await?;
    for (act, ticket_type) in short {
        if over.contains(&ticket_type) {
            fates[act.place] = Some(Fate::HoldsOver(ticket_type));
        } else {
            answers.push((act, Answer::refused(RefusalReason::SoldOut.plain())));
        }
    }
    ticket_types::hold_all(tx, stock.taken()).await?;
    orders::insert_all(tx, &placed).await?;
    Ok(answers)
}

/// Keeps the answers of the orders that acted.
async fn leave_all(
    tx: &mut Tx<'_>,
    answers: &[(Act<'_>, Answer)],
    fates: &mut [Option<Fate>],
) -> Result<(), OrdersError> {
    let kept = answers.iter().map(|(act, answer)| (act.grant, answer));
    operations::keep_all(tx, Kind::PlaceOrder, kept).await?;
    for (act, answer) in answers {
        fates[act.place] = Some(Fate::Answered(answer.clone()));
    }
    Ok(())
}
