//! Confirming: the order was paid outside the acquirer.

use std::sync::Arc;

use database::Tx;

use crate::{
    entry::{self, Call, Entry},
    error::OrdersError,
    operation_id::OrderId,
    order::{OrderState, OrderStatus},
    outcome::{Answer, Outcome, RefusalReason},
    shop::Shop,
    store::{
        orders, payments,
        ticket_types::{self, Move},
    },
};

/// A change asked of one order.
#[derive(Clone, Debug)]
pub struct OrderCall {
    /// Who asks.
    pub call: Call,
    /// Which order; none when the name cannot be one.
    pub order: Option<OrderId>,
}

impl Shop {
    /// Marks a pending order as paid outside the acquirer.
    pub async fn confirm_order(&self, ask: OrderCall) -> Result<Answer, OrdersError> {
        let ask = Arc::new(ask);
        self.act("confirm order", move |tx| {
            let ask = Arc::clone(&ask);
            Box::pin(async move { confirm(tx, &ask).await })
        })
        .await
    }
}

async fn confirm(tx: &mut Tx<'_>, ask: &OrderCall) -> Result<Answer, OrdersError> {
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
    if let Err(reason) = state.may_be_paid() {
        return Ok(Answer::refused(reason.plain()));
    }
    ticket_types::shift(tx, &locked, Move::SellHeld).await?;
    orders::advance(tx, &mut order, OrderStatus::Paid, None).await?;
    Ok(Answer::done(Outcome::Order(orders::view(tx, order).await?)))
}
