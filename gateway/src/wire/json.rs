//! Messages of the orders service as JSON, with members in a fixed order.
//!
//! Each function is pure: the same message gives the same bytes, whoever renders it and whenever.

use chassis::clock::format_rfc3339;
use idem_proto::orders::v1 as proto;
use serde::Serialize;
use std::time::SystemTime;

/// A message that lacks what it must have, or has a value that this release does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the orders service sent {0}")]
pub(crate) struct Unreadable(pub(crate) &'static str);

#[derive(Serialize)]
pub(crate) struct Money {
    amount: i64,
    currency: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TicketType {
    id: String,
    venue_id: String,
    name: String,
    price: Money,
    capacity: i64,
    sold: i64,
    held: i64,
    available: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    pub(crate) id: String,
    status: &'static str,
    venue_id: String,
    items: Vec<OrderItem>,
    tickets: Vec<Ticket>,
    total: Money,
    created_at: String,
    hold_expires_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OrderItem {
    ticket_type_id: String,
    quantity: u32,
    unit_price: Money,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ticket {
    id: String,
    ticket_type_id: String,
    status: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payment {
    pub(crate) id: String,
    order_id: String,
    status: &'static str,
    amount: i64,
    currency: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckIn {
    pub(crate) ticket_id: String,
    already_used: bool,
    used_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PaymentLink {
    url: String,
    expires_at: String,
}

// === from messages ===

impl TryFrom<proto::TicketType> for TicketType {
    type Error = Unreadable;

    fn try_from(it: proto::TicketType) -> Result<Self, Unreadable> {
        Ok(Self {
            id: it.id,
            venue_id: it.venue_id,
            name: it.name,
            price: money(it.price)?,
            capacity: it.capacity,
            sold: it.sold,
            held: it.held,
            available: it.available,
        })
    }
}

impl TryFrom<proto::Order> for Order {
    type Error = Unreadable;

    fn try_from(it: proto::Order) -> Result<Self, Unreadable> {
        Ok(Self {
            status: order_status(it.status())?,
            id: it.id,
            venue_id: it.venue_id,
            items: it.items.into_iter().map(OrderItem::try_from).collect::<Result<_, _>>()?,
            tickets: it.tickets.into_iter().map(Ticket::try_from).collect::<Result<_, _>>()?,
            total: money(it.total)?,
            created_at: timestamp(it.created_at)?,
            hold_expires_at: timestamp(it.hold_expires_at)?,
        })
    }
}

impl TryFrom<proto::OrderItem> for OrderItem {
    type Error = Unreadable;

    fn try_from(it: proto::OrderItem) -> Result<Self, Unreadable> {
        Ok(Self { ticket_type_id: it.ticket_type_id, quantity: it.quantity, unit_price: money(it.unit_price)? })
    }
}

impl TryFrom<proto::Ticket> for Ticket {
    type Error = Unreadable;

    fn try_from(it: proto::Ticket) -> Result<Self, Unreadable> {
        let status = match it.status() {
            proto::TicketStatus::Held => "held",
            proto::TicketStatus::Valid => "valid",
            proto::TicketStatus::Used => "used",
            proto::TicketStatus::Void => "void",
            proto::TicketStatus::Unspecified => return Err(Unreadable("a ticket without a status")),
        };
        Ok(Self { id: it.id, ticket_type_id: it.ticket_type_id, status })
    }
}

impl TryFrom<proto::Payment> for Payment {
    type Error = Unreadable;

    fn try_from(it: proto::Payment) -> Result<Self, Unreadable> {
        let status = match it.status() {
            proto::PaymentStatus::Pending => "pending",
            proto::PaymentStatus::Approved => "approved",
            proto::PaymentStatus::Declined => "declined",
            proto::PaymentStatus::RefundPending => "refund_pending",
            proto::PaymentStatus::Refunded => "refunded",
            proto::PaymentStatus::Unspecified => return Err(Unreadable("a payment without a status")),
        };
        let Money { amount, currency } = money(it.amount)?;
        Ok(Self { id: it.id, order_id: it.order_id, status, amount, currency })
    }
}

impl TryFrom<proto::CheckIn> for CheckIn {
    type Error = Unreadable;

    fn try_from(it: proto::CheckIn) -> Result<Self, Unreadable> {
        Ok(Self { ticket_id: it.ticket_id, already_used: it.already_used, used_at: timestamp(it.used_at)? })
    }
}

impl TryFrom<proto::PaymentLink> for PaymentLink {
    type Error = Unreadable;

    fn try_from(it: proto::PaymentLink) -> Result<Self, Unreadable> {
        Ok(Self { url: it.url, expires_at: timestamp(it.expires_at)? })
    }
}

fn order_status(status: proto::OrderStatus) -> Result<&'static str, Unreadable> {
    Ok(match status {
        proto::OrderStatus::Pending => "pending",
        proto::OrderStatus::Paid => "paid",
        proto::OrderStatus::Cancelled => "cancelled",
        proto::OrderStatus::Expired => "expired",
        proto::OrderStatus::RefundPending => "refund_pending",
        proto::OrderStatus::Refunded => "refunded",
        proto::OrderStatus::Unspecified => return Err(Unreadable("an order without a status")),
    })
}

fn money(it: Option<proto::Money>) -> Result<Money, Unreadable> {
    let it = it.ok_or(Unreadable("a price without an amount"))?;
    Ok(Money { amount: it.amount, currency: it.currency })
}

fn timestamp(it: Option<prost_types::Timestamp>) -> Result<String, Unreadable> {
    let it = it.ok_or(Unreadable("a moment that is missing"))?;
    SystemTime::try_from(it).map(format_rfc3339).map_err(|_| Unreadable("a moment that is out of range"))
}
