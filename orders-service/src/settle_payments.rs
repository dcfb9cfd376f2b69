//! Words of the acquirer that wait are applied in one transaction, with the same few statements whatever their number.
//!
//! What nearly all of them do is done here: an approval pays its order out of the seats held for it, and a repeat says nothing new.
//! Whatever else a word does, it does alone ([`settle::apply`](crate::settle::apply)), with the rows as it finds them then.

use std::collections::{BTreeMap, BTreeSet};

use database::Tx;

use crate::{
    error::OrdersError,
    operation_id::{OperationId, OrderId, PaymentId},
    order::OrderStatus,
    outcome::{Label, Outcome},
    payment::{PaymentStatus, Settlement, Verdict},
    settle::{Applied, Standing},
    store::{
        operations::{self, Kept, Operation},
        orders::{self, OrderRow},
        payments::{self, PaymentRow},
        ticket_types,
    },
};

/// A word of the acquirer about a payment whose amount and currency it confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// As it was seen before it was locked: only what never changes of it is relied on, and that a decided payment stays decided.
    pub(crate) payment: PaymentRow,
    /// What the acquirer says of it.
    pub(crate) verdict: Verdict,
}

/// The rows that the words are about, locked, and as these words leave them.
struct Rows {
    operations: BTreeMap<OperationId, Operation>,
    /// Of the orders whose seats may move: how many of which ticket type.
    seats: BTreeMap<OrderId, Vec<(String, i64)>>,
    orders: BTreeMap<OrderId, OrderRow>,
    payments: BTreeMap<PaymentId, PaymentRow>,
    /// What was approved, and where it stood before.
    approved: Vec<(PaymentId, PaymentStatus)>,
}

/// Applies words; none for each that is to be applied alone. Takes every lock in the order of the store.
pub(crate) async fn apply_all(tx: &mut Tx<'_>, words: &[Heard]) -> Result<Vec<Option<Applied>>, OrdersError> {
    let mut rows = Rows::lock(tx, words).await?;
    let settlements: Vec<_> = words.iter().map(|word| rows.settle(word)).collect::<Result<_, _>>()?;
    let kept = rows.write(tx).await?;
    let standing = |word: &Heard| {
        let operation = word.payment.operation;
        kept.get(&operation).cloned().or_else(|| rows.final_answer(operation)).map(Standing::Final)
    };
    let applied = words.iter().zip(settlements).map(|(word, settlement)| {
        settlement.and_then(|settlement| Some(Applied { standing: standing(word)?, settlement }))
    });
    Ok(applied.collect())
}

impl Rows {
    async fn lock(tx: &mut Tx<'_>, words: &[Heard]) -> Result<Self, OrdersError> {
        let operations = operations::lock_all(tx, &words.iter().map(|word| word.payment.operation).collect()).await?;
        // Only an approval moves seats, and what an order is made of never changes.
        let moving: BTreeSet<OrderId> =
            words.iter().filter(|word| word.moves_seats()).map(|word| word.payment.order).collect();
        let seats = orders::seats(tx, &moving).await?;
        let types: BTreeSet<&str> = seats.values().flatten().map(|(id, _)| id.as_str()).collect();
        ticket_types::lock_all(tx, &types).await?;
        let orders = orders::lock_all(tx, &words.iter().map(|word| word.payment.order).collect()).await?;
        let payments = payments::lock_all(tx, &words.iter().map(|word| word.payment.id).collect()).await?;
        Ok(Self { operations, seats, orders, payments, approved: Vec::new() })
    }

    /// What a word does after those before it; none when it is not done here.
    fn settle(&mut self, word: &Heard) -> Result<Option<Settlement>, OrdersError> {
        let Heard { payment: seen, verdict } = word;
        let payment = self.payments.get_mut(&seen.id).ok_or(OrdersError::Corrupt("a payment is gone"))?;
        let order = self.orders.get_mut(&seen.order).ok_or(OrdersError::Corrupt("a payment without its order"))?;
        let settlement = payment.status.settle(order.status, *verdict);
        match settlement {
            Settlement::PayHeld if self.seats.contains_key(&order.id) => {
                self.approved.push((payment.id, payment.status));
                payment.status = PaymentStatus::Approved;
                order.status = OrderStatus::Paid;
                Ok(Some(settlement))
            }
            Settlement::Nothing => Ok(Some(settlement)),
            _ => Ok(None),
        }
    }

    /// Writes what was approved, and returns the answers kept for it.
    async fn write(&self, tx: &mut Tx<'_>) -> Result<BTreeMap<OperationId, Kept>, OrdersError> {
        let approved: Vec<&PaymentRow> = self.approved.iter().filter_map(|(id, _)| self.payments.get(id)).collect();
        let mut sold = BTreeMap::<&str, i64>::new();
        for (id, quantity) in approved.iter().filter_map(|payment| self.seats.get(&payment.order)).flatten() {
            *sold.entry(id).or_default() += quantity;
        }
        ticket_types::sell_held(tx, sold.into_iter()).await?;
        orders::pay_all(tx, approved.iter().map(|payment| (payment.order, payment.id))).await?;
        payments::decide_all(tx, self.approved.iter().copied(), PaymentStatus::Approved).await?;
        let outcomes = approved.iter().map(|payment| (payment.operation, Outcome::Payment(payment.view())));
        operations::settle_all(tx, outcomes.collect()).await
    }

    fn final_answer(&self, operation: OperationId) -> Option<Kept> {
        let kept = self.operations.get(&operation)?.kept.clone()?;
        (kept.label == Label::Final).then_some(kept)
    }
}

impl Heard {
    fn moves_seats(&self) -> bool {
        self.verdict == Verdict::Approved && self.payment.status.is_undecided()
    }
}
