//! Cancelling: the seats are free at once, and an approved payment goes back.

use std::sync::Arc;

use database::Tx;

use crate::{
    confirm_order::OrderCall,
    entry::{self, Entry},
    error::OrdersError,
    operation_id::{OrderId, PaymentId},
    order::{Cancellation, OrderState, OrderStatus},
    outcome::{Answer, Outcome, RefusalReason},
    payment::PaymentStatus,
    shop::Shop,
    store::{
        orders, payments, refunds,
        ticket_types::{self, Move},
        tickets,
    },
};

impl Shop {
    /// Cancels an order. The answer is what the transaction made: the refund it may have ordered is sent afterwards.
    pub async fn cancel_order(&self, ask: OrderCall) -> Result<Answer, OrdersError> {
        let ask = Arc::new(ask);
        let answer = self
            .act("cancel order", move |tx| {
                let ask = Arc::clone(&ask);
                Box::pin(async move { cancel(tx, &ask).await })
            })
            .await?;
        self.refund_ordered.notify_one();
        Ok(answer)
    }
}

async fn cancel(tx: &mut Tx<'_>, ask: &OrderCall) -> Result<Answer, OrdersError> {
    match entry::enter(tx, &ask.call).await? {
        Entry::Act => {}
        Entry::Answered(answer) => return Ok(answer),
        Entry::Running => return Err(OrdersError::Corrupt("a transaction without steps was seen running")),
    }
    let answer = match ask.order {
        Some(id) => judge(tx, ask, id).await?,
        None => Answer::refused(RefusalReason::NotFound.plain()),
    };
    entry::leave(tx, &ask.call, answer).await
}

async fn judge(tx: &mut Tx<'_>, ask: &OrderCall, id: OrderId) -> Result<Answer, OrdersError> {
    let locked = ticket_types::lock_of_order_of(tx, &ask.call.tenant, id).await?;
    let Some(mut order) = orders::lock_of(tx, &ask.call.tenant, id).await? else {
        return Ok(Answer::refused(RefusalReason::NotFound.plain()));
    };
    let state = OrderState {
        status: order.status,
        hold: order.hold(tx.now()),
        has_open_payment: payments::has_open(tx, id).await?,
    };
    let is_checked_in = tickets::has_used(tx, id).await?;
    let (to, seats) = match state.may_be_cancelled(order.paid_by, is_checked_in) {
        Err(reason) => return Ok(Answer::refused(reason.plain())),
        Ok(Cancellation::Held) => (OrderStatus::Cancelled, Move::FreeHeld),
        Ok(Cancellation::Sold) => (OrderStatus::Cancelled, Move::FreeSold),
        Ok(Cancellation::Refund(payment)) => {
            give_back(tx, payment).await?;
            (OrderStatus::RefundPending, Move::FreeSold)
        }
    };
    ticket_types::shift(tx, &locked, seats).await?;
    orders::advance(tx, &mut order, to, None).await?;
    Ok(Answer::done(Outcome::Order(orders::view(tx, order).await?)))
}

async fn give_back(tx: &mut Tx<'_>, payment: PaymentId) -> Result<(), OrdersError> {
    let mut payment = payments::lock(tx, payment).await?;
    if payment.status != PaymentStatus::Approved {
        return Err(OrdersError::Corrupt("a paid order whose payment is not approved"));
    }
    payments::decide(tx, &mut payment, PaymentStatus::RefundPending).await?;
    refunds::order(tx, &payment).await
}
