//! Beginning what waits in one transaction, with the same few statements whatever the number of payments.
//!
//! Each payment has its own fate. One that is refused, stale or was answered before leaves the others as they are. Whatever was begun
//! before, and whatever meets another of this very batch, is left to a transaction of its own.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use database::{Database, Tx};

use crate::{
    begin_payment::{self, Begun, Sending, Waiting},
    entry::{self, Entry},
    error::OrdersError,
    operation_id::{OperationId, OrderId},
    order::OrderState,
    outcome::{Answer, Kind, Refusal, RefusalReason},
    pay::Pay,
    store::{
        operations::{self, Raise},
        orders::{self, OrderRow},
        payments::{self, PaymentRow},
    },
    timestamp::Timestamp,
    trip::Passenger as _,
};

/// What became of the beginning of one payment.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is through.
    Begun(Begun),
    /// It alone failed.
    Failed(OrdersError),
    /// It is to begin in a transaction of its own.
    Alone,
}

/// A payment of the batch.
struct Act<'b> {
    place: usize,
    waiting: &'b Waiting,
}

/// Begins payments, and says what became of each. An error concerns all of them.
pub(crate) async fn begin(
    store: &Database,
    batch: Vec<Waiting>,
    hold_ttl: Duration,
    acquirer_timeout: Duration,
) -> Result<Vec<Fate>, OrdersError> {
    let batch: Arc<[Waiting]> = batch.into();
    store
        .transact("begin payments", move |tx| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { begin_all(tx, &batch, hold_ttl, acquirer_timeout).await })
        })
        .await
}

async fn begin_all(
    tx: &mut Tx<'_>,
    batch: &[Waiting],
    hold_ttl: Duration,
    acquirer_timeout: Duration,
) -> Result<Vec<Fate>, OrdersError> {
    let mut fates: Vec<Fate> = batch.iter().map(|_| Fate::Alone).collect();
    let acts = enter_all(tx, firsts(batch, &mut fates), &mut fates).await?;
    let wanted: BTreeMap<OrderId, &Act<'_>> = firsts_of_orders(&acts);
    let orders = orders::lock_all_of(tx, wanted.iter().map(|(order, act)| (*order, &act.ask().call.tenant))).await?;
    let payments = wanted.iter().map(|(order, act)| (act.ask().grant.operation.payment(), *order));
    let (known, taken) = payments::in_the_way(tx, payments).await?;
    let (mut refused, mut started) = (Vec::new(), Vec::new());
    for act in &acts {
        let is_first = act.ask().order.is_none_or(|order| wanted.get(&order).is_some_and(|it| it.place == act.place));
        if !is_first || known.contains(&act.ask().grant.operation.payment()) {
            continue;
        }
        // Whoever was overtaken while its rows were held by somebody else begins nothing.
        if act.waiting.is_over() {
            fates[act.place] = Fate::Failed(OrdersError::Deadline);
            continue;
        }
        match act.judge(tx.now(), &orders, &taken) {
            Ok(order) => {
                let until = Timestamp(tx.now()).plus(acquirer_timeout);
                started.push((act, begin_payment::new_payment(act.ask(), order, until)));
            }
            Err(refusal) => refused.push((act, Answer::refused(refusal))),
        }
    }
    let rows: Vec<PaymentRow> = started.iter().map(|(_, payment)| payment.clone()).collect();
    payments::start_all(tx, &rows).await?;
    orders::hold_all_on(tx, rows.iter().map(|payment| payment.order), hold_ttl).await?;
    operations::begin_all(tx, started.iter().map(|(act, _)| act.ask().grant)).await?;
    operations::keep_all(tx, Kind::Pay, refused.iter().map(|(act, answer)| (act.ask().grant, answer))).await?;
    for (act, payment) in started {
        fates[act.place] = Fate::Begun(Begun::Send(payment, Sending::First));
    }
    for (act, answer) in refused {
        fates[act.place] = Fate::Begun(Begun::Answered(answer));
    }
    Ok(fates)
}

/// The first call of each operation, in the order of the ids, in which they are locked.
fn firsts<'b>(batch: &'b [Waiting], fates: &mut [Fate]) -> BTreeMap<OperationId, Act<'b>> {
    let mut firsts = BTreeMap::new();
    for (place, waiting) in batch.iter().enumerate() {
        if waiting.is_over() {
            fates[place] = Fate::Failed(OrdersError::Deadline);
        } else {
            firsts.entry(waiting.ask.grant.operation).or_insert(Act { place, waiting });
        }
    }
    firsts
}

/// Raises the tokens of all operations, and returns the payments that are to act, in their sequence.
async fn enter_all<'b>(
    tx: &mut Tx<'_>,
    firsts: BTreeMap<OperationId, Act<'b>>,
    fates: &mut [Fate],
) -> Result<Vec<Act<'b>>, OrdersError> {
    let raises: Vec<Raise> =
        firsts.values().map(|act| Raise { grant: act.ask().grant, identity: act.ask().call.identity() }).collect();
    let mut raised = operations::raise_all(tx, &raises).await?;
    let mut acts = Vec::with_capacity(raises.len());
    for (act, raise) in firsts.into_values().zip(&raises) {
        match raised.remove(&raise.grant.operation) {
            Some(operation) => match entry::at(operation, raise.grant) {
                Entry::Act => acts.push(act),
                Entry::Answered(answer) => fates[act.place] = Fate::Begun(Begun::Answered(answer)),
                Entry::Running => fates[act.place] = Fate::Begun(Begun::Running),
            },
            None => fates[act.place] = Fate::Failed(entry::why_not(tx, raise).await?),
        }
    }
    acts.sort_by_key(|act| act.place);
    Ok(acts)
}

/// The first payment of each order.
fn firsts_of_orders<'a, 'b>(acts: &'a [Act<'b>]) -> BTreeMap<OrderId, &'a Act<'b>> {
    let mut firsts = BTreeMap::new();
    for act in acts {
        if let Some(order) = act.ask().order {
            firsts.entry(order).or_insert(act);
        }
    }
    firsts
}

impl<'b> Act<'b> {
    fn ask(&self) -> &'b Pay {
        &self.waiting.ask
    }

    /// The order to be paid, or why it may not be.
    fn judge<'o>(
        &self,
        now: i64,
        orders: &'o BTreeMap<OrderId, OrderRow>,
        taken: &BTreeSet<OrderId>,
    ) -> Result<&'o OrderRow, Refusal> {
        let order = self.ask().order.and_then(|id| orders.get(&id));
        let order = order.ok_or_else(|| RefusalReason::NotFound.plain())?;
        let state =
            OrderState { status: order.status, hold: order.hold(now), has_open_payment: taken.contains(&order.id) };
        state.may_be_paid().map_err(RefusalReason::plain)?;
        Ok(order)
    }
}
