//! Checking in: a ticket lets its bearer in once; asked again, it says when that was.

use std::sync::Arc;

use database::Tx;

use crate::{
    entry::{self, Call, Entry},
    error::OrdersError,
    operation_id::TicketId,
    order::OrderStatus,
    outcome::{Answer, CheckIn, Outcome, RefusalReason},
    shop::Shop,
    store::{
        orders,
        tickets::{self, TicketRow},
    },
    timestamp::Timestamp,
};

/// A ticket to check in.
#[derive(Clone, Debug)]
pub struct CheckInCall {
    /// Who asks.
    pub call: Call,
    /// Which ticket; none when the name cannot be one.
    pub ticket: Option<TicketId>,
}

impl Shop {
    /// Marks a ticket of a paid order as used, or answers its first use.
    pub async fn check_in(&self, ask: CheckInCall) -> Result<Answer, OrdersError> {
        let ask = Arc::new(ask);
        self.act("check in ticket", move |tx| {
            let ask = Arc::clone(&ask);
            Box::pin(async move { check_in(tx, &ask).await })
        })
        .await
    }
}

async fn check_in(tx: &mut Tx<'_>, ask: &CheckInCall) -> Result<Answer, OrdersError> {
    match entry::enter(tx, &ask.call).await? {
        Entry::Act => {}
        Entry::Answered(answer) => return Ok(answer),
        Entry::Running => return Err(OrdersError::Corrupt("a transaction without steps was seen running")),
    }
    let ticket = match ask.ticket {
        Some(id) => tickets::find_of(tx, &ask.call.tenant, id).await?,
        None => None,
    };
    let answer = match ticket {
        Some(ticket) => judge(tx, ask, ticket).await?,
        None => Answer::refused(RefusalReason::NotFound.plain()),
    };
    entry::leave(tx, &ask.call, answer).await
}

async fn judge(tx: &mut Tx<'_>, ask: &CheckInCall, ticket: TicketRow) -> Result<Answer, OrdersError> {
    // Locked, so that a cancellation either sees this use or prevents it.
    let order = orders::lock(tx, ticket.order).await?.ok_or(OrdersError::Corrupt("a ticket without its order"))?;
    if order.status != OrderStatus::Paid {
        return Ok(Answer::refused(RefusalReason::NotPaid.plain()));
    }
    let is_first = tickets::use_now(tx, ticket.id).await?;
    let used_at = if is_first {
        Some(Timestamp(tx.now()))
    } else {
        tickets::find_of(tx, &ask.call.tenant, ticket.id).await?.and_then(|ticket| ticket.used_at)
    };
    let used_at = used_at.ok_or(OrdersError::Corrupt("a used ticket without its time"))?;
    Ok(Answer::done(Outcome::CheckIn(CheckIn { ticket: ticket.id, is_already_used: !is_first, used_at })))
}
