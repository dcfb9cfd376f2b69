//! The acquirer's word about a payment becomes rows, whoever heard it: the call that charged, a look-up, the watch, a webhook.

use database::Tx;

use crate::{
    error::OrdersError,
    operation_id::PaymentId,
    order::OrderStatus,
    outcome::{Label, Outcome, RefusalReason},
    payment::{Payment, PaymentStatus, Settlement, Verdict},
    shop::{Shop, alert},
    store::{
        operations::{self, Kept},
        orders::{self, OrderRow},
        payments::{self, PaymentRow},
        refunds,
        ticket_types::{self, LockedTypes, Move},
    },
};

/// Where a payment's operation stands after a word about it.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Decided for good.
    Final(Kept),
    /// Open, and the acquirer has not decided.
    Pending(Payment),
    /// Given up, and nothing decisive was heard.
    Undecided,
}

/// What a word did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Where the operation stands now.
    pub standing: Standing,
    /// What the word asked for.
    pub settlement: Settlement,
}

/// Applies the acquirer's word to a payment whose amount and currency it confirmed. Takes every lock in the order of the store.
pub async fn apply(tx: &mut Tx<'_>, id: PaymentId, verdict: Verdict) -> Result<Applied, OrdersError> {
    let seen = payments::find(tx, id).await?.ok_or(OrdersError::Corrupt("a payment is gone"))?;
    operations::lock(tx, seen.operation).await?;
    // Only an approval moves seats; an undecided payment can only become decided, so this look without a lock is enough.
    let locked = if verdict == Verdict::Approved && seen.status.is_undecided() {
        Some(ticket_types::lock_of_order(tx, seen.order).await?)
    } else {
        None
    };
    let mut order = orders::lock(tx, seen.order).await?.ok_or(OrdersError::Corrupt("a payment without its order"))?;
    let mut payment = payments::lock(tx, id).await?;
    let settlement = payment.status.settle(order.status, verdict);
    match (settlement, locked) {
        (Settlement::Nothing | Settlement::Contradiction, _) => {}
        (Settlement::MarkPending, _) => payments::mark_pending(tx, &mut payment, crate::watch::FIRST).await?,
        (Settlement::Decline, _) => decline(tx, &order, &mut payment).await?,
        (Settlement::PayHeld, Some(locked)) => pay(tx, &mut order, &mut payment, &locked, Move::SellHeld).await?,
        (Settlement::PayIfFree, Some(locked)) => pay_if_free(tx, &mut order, &mut payment, &locked).await?,
        (Settlement::Refund(reason), _) => refund(tx, &mut payment, reason).await?,
        (Settlement::PayHeld | Settlement::PayIfFree, None) => {
            return Err(OrdersError::Corrupt("a decided payment became undecided"));
        }
    }
    let kept = operations::lock(tx, seen.operation).await?.kept;
    let standing = match kept {
        Some(kept) if kept.label == Label::Final => Standing::Final(kept),
        _ if payment.status == PaymentStatus::Pending => Standing::Pending(payment.view()),
        _ => Standing::Undecided,
    };
    Ok(Applied { standing, settlement })
}

async fn decline(tx: &mut Tx<'_>, order: &OrderRow, payment: &mut PaymentRow) -> Result<(), OrdersError> {
    // A payment that was given up no longer prolongs the hold; another one may be doing so.
    if payment.status.is_open() && order.status == OrderStatus::Pending {
        orders::hold_on(tx, order.id, std::time::Duration::ZERO).await?;
    }
    payments::decide(tx, payment, PaymentStatus::Declined).await?;
    let outcome = Outcome::Refused(RefusalReason::PaymentDeclined.plain());
    operations::settle(tx, payment.operation, &outcome).await
}

async fn pay(
    tx: &mut Tx<'_>,
    order: &mut OrderRow,
    payment: &mut PaymentRow,
    locked: &LockedTypes,
    seats: Move,
) -> Result<(), OrdersError> {
    ticket_types::shift(tx, locked, seats).await?;
    orders::advance(tx, order, OrderStatus::Paid, Some(payment.id)).await?;
    payments::decide(tx, payment, PaymentStatus::Approved).await?;
    operations::settle(tx, payment.operation, &Outcome::Payment(payment.view())).await
}

/// The hold has lapsed: the seats are taken again if nobody else has them.
async fn pay_if_free(
    tx: &mut Tx<'_>,
    order: &mut OrderRow,
    payment: &mut PaymentRow,
    locked: &LockedTypes,
) -> Result<(), OrdersError> {
    let short_of = ticket_types::short_of(tx, locked).await?;
    if short_of.is_empty() {
        return pay(tx, order, payment, locked, Move::SellFree).await;
    }
    // Somebody else's seats only count while their hold is alive.
    for ticket_type in &short_of {
        ticket_types::sweep_first(tx, ticket_type).await?;
    }
    refund(tx, payment, RefusalReason::HoldExpiredRefunded).await
}

async fn refund(tx: &mut Tx<'_>, payment: &mut PaymentRow, reason: RefusalReason) -> Result<(), OrdersError> {
    #[cfg(feature = "sabotage")]
    if crate::sabotage::breaks("refund") {
        payments::decide(tx, payment, PaymentStatus::Refunded).await?;
        return operations::settle(tx, payment.operation, &Outcome::Refused(reason.plain())).await;
    }
    payments::decide(tx, payment, PaymentStatus::RefundPending).await?;
    refunds::order(tx, payment).await?;
    operations::settle(tx, payment.operation, &Outcome::Refused(reason.plain())).await
}

impl Shop {
    /// What follows the commit of an applied word: the outbox wakes, contradictions are made known.
    pub(crate) fn after(&self, payment: PaymentId, applied: &Applied) {
        let settlement = match applied.settlement {
            Settlement::Nothing | Settlement::MarkPending => return,
            Settlement::Contradiction => {
                return alert("contradiction", &format!("the acquirer contradicts settled payment {payment}"));
            }
            Settlement::Decline => "declined",
            Settlement::PayHeld => "approved",
            // Which of the two it was shows in what the operation came to.
            Settlement::PayIfFree | Settlement::Refund(_) => {
                self.refund_ordered.notify_one();
                "late"
            }
        };
        metrics::counter!("orders_payments_settled_total", "settlement" => settlement).increment(1);
    }
}
