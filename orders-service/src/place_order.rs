//! Placing an order: seats are held, prices frozen, tickets named.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use database::Tx;

use crate::{
    entry::{self, Call, Entry},
    error::OrdersError,
    money::Money,
    operation_id::OrderId,
    order::{Item, Order, OrderStatus, Ticket},
    outcome::{Answer, Outcome, Refusal, RefusalReason},
    shop::Shop,
    stock::{Seats, TicketType},
    store::{orders, ticket_types},
    timestamp::Timestamp,
};

/// An order to place. Always keyed: its id follows from the operation.
#[derive(Clone, Debug)]
pub struct PlaceOrder {
    /// Who asks.
    pub call: Call,
    /// The order that this operation places.
    pub order: OrderId,
    /// The venue of all its types.
    pub venue: String,
    /// What is ordered, in the buyer's sequence.
    pub seats: Vec<Seats>,
}

impl Shop {
    /// Holds the seats of an order for `--hold-ttl`, all or none.
    pub async fn place_order(&self, ask: PlaceOrder) -> Result<Answer, OrdersError> {
        let (ask, hold_ttl) = (Arc::new(ask), self.settings.hold_ttl);
        let answer = self
            .act("place order", move |tx| {
                let ask = Arc::clone(&ask);
                Box::pin(async move { place(tx, &ask, hold_ttl).await })
            })
            .await?;
        if let (Some(Outcome::Order(_)), false) = (&answer.outcome, answer.is_replay) {
            metrics::counter!("orders_placed_total").increment(1);
        }
        Ok(answer)
    }
}

async fn place(tx: &mut Tx<'_>, ask: &PlaceOrder, hold_ttl: Duration) -> Result<Answer, OrdersError> {
    match entry::enter(tx, &ask.call).await? {
        Entry::Act => {}
        Entry::Answered(answer) => return Ok(answer),
        Entry::Running => return Err(OrdersError::Corrupt("a transaction without steps was seen running")),
    }
    let answer = match hold(tx, ask, hold_ttl).await? {
        Ok(order) => Answer::done(Outcome::Order(order)),
        Err(refusal) => Answer::refused(refusal),
    };
    entry::leave(tx, &ask.call, answer).await
}

async fn hold(tx: &mut Tx<'_>, ask: &PlaceOrder, ttl: Duration) -> Result<Result<Order, Refusal>, OrdersError> {
    // Sorted, so that two orders of the same types wait for each other in one direction only.
    let wanted: BTreeMap<&str, u32> = ask.seats.iter().map(|s| (s.ticket_type.as_str(), s.quantity)).collect();
    if wanted.len() < ask.seats.len() {
        return Ok(Err(RefusalReason::Invalid.because("a ticket type is listed twice")));
    }
    let mut types = BTreeMap::new();
    for id in wanted.keys() {
        match ticket_types::lock(tx, id).await? {
            Some(found) => types.insert(*id, found),
            None => return Ok(Err(RefusalReason::NotFound.because(format!("there is no ticket type {id}")))),
        };
    }
    let (items, total) = match price(ask, &types) {
        Ok(priced) => priced,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for (id, quantity) in &wanted {
        let found = &types[id];
        if found.capacity - found.sold - found.held < i64::from(*quantity) {
            ticket_types::sweep_first(tx, id).await?;
            return Ok(Err(RefusalReason::SoldOut.plain()));
        }
    }
    for (id, quantity) in &wanted {
        ticket_types::hold(tx, id, *quantity).await?;
    }
    let created_at = Timestamp(tx.now());
    let order = Order {
        id: ask.order,
        status: OrderStatus::Pending,
        venue: ask.venue.clone(),
        tickets: tickets(ask),
        items,
        total,
        created_at,
        hold_expires_at: created_at.plus(ttl),
    };
    orders::insert(tx, ask.call.tenant.as_str(), &order).await?;
    Ok(Ok(order))
}

/// The items at today's prices and their sum, or why they do not go together.
fn price(ask: &PlaceOrder, types: &BTreeMap<&str, TicketType>) -> Result<(Vec<Item>, Money), Refusal> {
    let mut items = Vec::with_capacity(ask.seats.len());
    let mut total: Option<Money> = None;
    for Seats { ticket_type, quantity } in &ask.seats {
        let found = &types[ticket_type.as_str()];
        if found.venue != ask.venue {
            return Err(RefusalReason::Invalid.because(format!("ticket type {ticket_type} is of another venue")));
        }
        let sum = total.get_or_insert_with(|| Money { amount: 0, currency: found.price.currency.clone() });
        if sum.currency != found.price.currency {
            return Err(RefusalReason::Invalid.because("the ticket types are priced in different currencies"));
        }
        let price = i64::from(*quantity).checked_mul(found.price.amount);
        sum.amount = price
            .and_then(|price| sum.amount.checked_add(price))
            .ok_or_else(|| RefusalReason::Invalid.because("the total is too large"))?;
        items.push(Item { ticket_type: ticket_type.clone(), quantity: *quantity, unit_price: found.price.clone() });
    }
    let total = total.ok_or_else(|| RefusalReason::Invalid.because("an order has at least one item"))?;
    Ok((items, total))
}

/// One ticket a seat, in the sequence of the items.
fn tickets(ask: &PlaceOrder) -> Vec<Ticket> {
    let types = ask.seats.iter().flat_map(|seats| std::iter::repeat_n(&seats.ticket_type, seats.quantity as usize));
    let status = OrderStatus::Pending.ticket(false);
    let ticket = |(ticket_type, position): (&String, u32)| Ticket {
        id: ask.order.ticket(position),
        ticket_type: ticket_type.clone(),
        status,
    };
    types.zip(0u32..).map(ticket).collect()
}
