//! What callers ask, checked: from here on every text is bounded and every id is one.

use std::time::Duration;

use idem_proto::orders::v1 as proto;

use crate::{
    check_in::CheckInCall,
    confirm_order::OrderCall,
    entry::Call,
    money::AMOUNT_MAX,
    operation_id::{FencingToken, Grant, OperationId, OrderId, Tenant, TicketId},
    outcome::Kind,
    pay::Pay,
    place_order::PlaceOrder,
    stock::{CAPACITY_MAX, Offer, Seats},
    wire,
};

/// Ids that callers choose, in bytes: every ticket repeats one, and the largest order must stay below a mebibyte.
const NAME_MAX: usize = 100;
/// Names for people, in characters.
const TITLE_MAX: usize = 200;
/// Items of an order, and seats of an item.
const COUNT_MAX: usize = 50;
/// Orders in one call.
const ITEMS_MAX: usize = 500;

/// A field that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {description}")]
pub struct Violation {
    /// Its path in the request.
    pub field: String,
    /// What it must be, as the end of a sentence that begins with the field.
    pub description: &'static str,
}

/// Nobody waits longer for an order.
const TIMEOUT_MAX_SECONDS: u64 = 24 * 3600;

type Checked<T> = Result<T, Violation>;

/// A wait of a stranger. The library's own conversion panics on the least of all numbers.
pub fn timeout(timeout: prost_types::Duration) -> Checked<Duration> {
    let parts = (u64::try_from(timeout.seconds), u32::try_from(timeout.nanos));
    match parts {
        (Ok(seconds), Ok(nanos)) if seconds <= TIMEOUT_MAX_SECONDS && nanos < 1_000_000_000 => {
            Ok(Duration::new(seconds, nanos))
        }
        _ => Err(Violation { field: "timeout".to_owned(), description: "must be from 0 s to a day" }),
    }
}

/// Checks an offer of tickets.
pub fn put_ticket_type(request: proto::PutTicketTypeRequest) -> Checked<Offer> {
    let asked = request.ticket_type.ok_or_else(|| violation("ticket_type", "is required"))?;
    let price = asked.price.and_then(wire::money_back).filter(|price| price.amount <= AMOUNT_MAX);
    let capacity = (0..=CAPACITY_MAX).contains(&asked.capacity);
    Ok(Offer {
        id: segment("ticket_type.id", asked.id)?,
        venue: name("ticket_type.venue_id", asked.venue_id)?,
        name: text("ticket_type.name", asked.name, TITLE_MAX, "must be 1 to 200 characters without controls")?,
        price: price.ok_or_else(|| {
            violation(
                "ticket_type.price",
                "must be an amount of 0 to 1000000000000 minor units in an ISO 4217 currency",
            )
        })?,
        capacity: capacity
            .then_some(asked.capacity)
            .ok_or_else(|| violation("ticket_type.capacity", "must be 0 to 1000000000"))?,
    })
}

/// The id of a ticket type; none when nothing can be stored under it.
pub fn ticket_type(id: String) -> Option<String> {
    name("id", id).ok()
}

/// Checks an order to place.
pub fn place_order(mut request: proto::PlaceOrderRequest) -> Checked<PlaceOrder> {
    let (call, grant) = keyed(Kind::PlaceOrder, request.operation.take(), &request)?;
    if !(1..=COUNT_MAX).contains(&request.items.len()) {
        return Err(violation("items", "must be 1 to 50 items"));
    }
    let seats = request.items.into_iter().enumerate().map(|(at, item)| {
        if !(1..=COUNT_MAX).contains(&(item.quantity as usize)) {
            return Err(violation(format!("items[{at}].quantity"), "must be 1 to 50"));
        }
        let ticket_type = name(&format!("items[{at}].ticket_type_id"), item.ticket_type_id)?;
        Ok(Seats { ticket_type, quantity: item.quantity })
    });
    Ok(PlaceOrder {
        seats: seats.collect::<Checked<_>>()?,
        venue: name("venue_id", request.venue_id)?,
        order: grant.operation.order(),
        call,
    })
}

/// Checks how many orders come at once; each is checked by itself.
pub fn place_orders(request: proto::PlaceOrdersRequest) -> Checked<Vec<proto::PlaceOrdersItem>> {
    if !(1..=ITEMS_MAX).contains(&request.items.len()) {
        return Err(violation("items", "must be 1 to 500 items"));
    }
    Ok(request.items)
}

/// Checks a payment to make.
pub fn pay(mut request: proto::PayRequest) -> Checked<Pay> {
    let (call, grant) = keyed(Kind::Pay, request.operation.take(), &request)?;
    Ok(Pay {
        order: OrderId::parse(&request.order_id),
        method: text(
            "payment_method",
            request.payment_method,
            TITLE_MAX,
            "must be 1 to 200 characters without controls",
        )?,
        call,
        grant,
    })
}

/// Checks an order to confirm.
pub fn confirm_order(mut request: proto::ConfirmOrderRequest) -> Checked<OrderCall> {
    let call = call(Kind::ConfirmOrder, request.operation.take(), &request)?;
    Ok(OrderCall { call, order: OrderId::parse(&request.order_id) })
}

/// Checks an order to cancel.
pub fn cancel_order(mut request: proto::CancelOrderRequest) -> Checked<OrderCall> {
    let call = call(Kind::CancelOrder, request.operation.take(), &request)?;
    Ok(OrderCall { call, order: OrderId::parse(&request.order_id) })
}

/// Checks a ticket to check in.
pub fn check_in(mut request: proto::CheckInTicketRequest) -> Checked<CheckInCall> {
    let call = call(Kind::CheckInTicket, request.operation.take(), &request)?;
    Ok(CheckInCall { call, ticket: TicketId::parse(&request.ticket_id) })
}

/// Checks the operation and token of a look-up or a closing.
pub fn grant(operation_id: &str, fencing_token: i64) -> Checked<Grant> {
    grant_of("", operation_id, fencing_token)
}

/// Checks a tenant.
pub fn tenant(name: &str) -> Checked<Tenant> {
    tenant_of("tenant", name)
}

/// A mutation that needs a grant, because the id of what it makes follows from its operation.
fn keyed(kind: Kind, operation: Option<proto::Operation>, request: &impl prost::Message) -> Checked<(Call, Grant)> {
    let call = call(kind, operation, request)?;
    let grant = call.grant.ok_or_else(|| violation("operation.operation_id", "is required"))?;
    Ok((call, grant))
}

/// A mutation with or without a grant; `request` no longer carries the operation, so that its digest is of what is asked alone.
fn call(kind: Kind, operation: Option<proto::Operation>, request: &impl prost::Message) -> Checked<Call> {
    let asked = operation.ok_or_else(|| violation("operation", "is required"))?;
    let tenant = tenant_of("operation.tenant", &asked.tenant)?;
    let grant = if asked.operation_id.is_empty() && asked.fencing_token == 0 {
        None
    } else {
        Some(grant_of("operation.", &asked.operation_id, asked.fencing_token)?)
    };
    Ok(Call { tenant, kind, request: wire::request_digest(request), grant })
}

fn grant_of(path: &str, operation_id: &str, fencing_token: i64) -> Checked<Grant> {
    let operation = OperationId::parse(operation_id)
        .ok_or_else(|| violation(format!("{path}operation_id"), "must be the UUID of a grant"))?;
    let token = FencingToken::new(fencing_token)
        .ok_or_else(|| violation(format!("{path}fencing_token"), "must be at least 1, as in the grant"))?;
    Ok(Grant { operation, token })
}

fn tenant_of(field: &str, name: &str) -> Checked<Tenant> {
    Tenant::new(name)
        .filter(|_| !name.contains(char::is_control))
        .ok_or_else(|| violation(field, "must be 1 to 200 bytes without controls"))
}

fn name(field: &str, value: String) -> Checked<String> {
    if value.len() > NAME_MAX {
        return Err(violation(field, "must be 1 to 100 bytes without controls"));
    }
    text(field, value, NAME_MAX, "must be 1 to 100 bytes without controls")
}

/// A name that stands in URLs by itself. What is a step in a path is resolved before anybody asks for it.
fn segment(field: &str, value: String) -> Checked<String> {
    match value.as_str() {
        "." | ".." => Err(violation(field, "must not be `.` or `..`")),
        _ => name(field, value),
    }
}

/// No control characters: one of them (NUL) cannot be stored by one of our stores.
fn text(field: &str, value: String, longest: usize, description: &'static str) -> Checked<String> {
    let is_fine = (1..=longest).contains(&value.chars().count()) && !value.contains(char::is_control);
    if is_fine { Ok(value) } else { Err(violation(field, description)) }
}

fn violation(field: impl Into<String>, description: &'static str) -> Violation {
    Violation { field: field.into(), description }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: &str = "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11";

    fn operation(operation_id: &str, fencing_token: i64) -> Option<proto::Operation> {
        Some(proto::Operation { tenant: "demo-a".to_owned(), operation_id: operation_id.to_owned(), fencing_token })
    }

    fn order(operation: Option<proto::Operation>, quantity: u32) -> proto::PlaceOrderRequest {
        let item = proto::PlaceOrderItem { ticket_type_id: "general".to_owned(), quantity };
        proto::PlaceOrderRequest { operation, venue_id: "demo".to_owned(), items: vec![item] }
    }

    #[test]
    fn a_violation_names_its_field() {
        let field = |request| place_order(request).expect_err("out of bounds").field;
        assert_eq!(field(order(None, 1)), "operation");
        assert_eq!(field(order(operation("", 0), 1)), "operation.operation_id");
        assert_eq!(field(order(operation("x", 1), 1)), "operation.operation_id");
        assert_eq!(field(order(operation(OPERATION, 0), 1)), "operation.fencing_token");
        assert_eq!(field(order(operation(OPERATION, -1), 1)), "operation.fencing_token");
        assert_eq!(field(order(operation(OPERATION, 1), 0)), "items[0].quantity");
        assert_eq!(field(order(operation(OPERATION, 1), 51)), "items[0].quantity");
        assert!(place_order(order(operation(OPERATION, 1), 50)).is_ok());
    }

    #[test]
    fn a_timeout_of_a_stranger_is_read_or_refused() {
        let read = |seconds, nanos| timeout(prost_types::Duration { seconds, nanos });
        assert_eq!(read(1, 500_000_000).expect("fine"), Duration::from_millis(1500));
        assert_eq!(read(0, 0).expect("fine"), Duration::ZERO);
        for (seconds, nanos) in [(i64::MIN, i32::MIN), (-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (86_401, 0)]
        {
            assert_eq!(read(seconds, nanos).expect_err("out of bounds").field, "timeout");
        }
    }

    #[test]
    fn the_digest_is_of_what_is_asked_not_of_who_asks() {
        let digest =
            |token, quantity| place_order(order(operation(OPERATION, token), quantity)).expect("fine").call.request;
        assert_eq!(digest(1, 2), digest(7, 2));
        assert_ne!(digest(1, 2), digest(1, 3));
    }

    #[test]
    fn a_mutation_without_a_key_has_no_grant() {
        let request = |operation| proto::ConfirmOrderRequest { operation, order_id: String::new() };
        assert_eq!(confirm_order(request(operation("", 0))).expect("unkeyed").call.grant, None);
        assert!(confirm_order(request(operation("", 3))).is_err());
        assert!(confirm_order(request(operation(OPERATION, 3))).expect("keyed").call.grant.is_some());
    }

    #[test]
    fn offers_are_bounded() {
        let offer = |capacity, amount, currency: &str| {
            let price = Some(proto::Money { amount, currency: currency.to_owned() });
            let mut ticket_type = proto::TicketType { capacity, price, ..Default::default() };
            (ticket_type.id, ticket_type.venue_id, ticket_type.name) = ("ü".repeat(50), "v".into(), "n".into());
            put_ticket_type(proto::PutTicketTypeRequest { ticket_type: Some(ticket_type) })
        };
        assert!(offer(0, 0, "EUR").is_ok());
        assert!(offer(-1, 0, "EUR").is_err());
        assert!(offer(1, -1, "EUR").is_err());
        assert!(offer(1, AMOUNT_MAX + 1, "EUR").is_err());
        assert!(offer(1, 1, "eur").is_err());
        let named = |id: &str| {
            let price = Some(proto::Money { amount: 1, currency: "EUR".to_owned() });
            let ticket_type = proto::TicketType {
                id: id.to_owned(),
                venue_id: "v".into(),
                name: "n".into(),
                price,
                ..Default::default()
            };
            put_ticket_type(proto::PutTicketTypeRequest { ticket_type: Some(ticket_type) }).map(drop)
        };
        for (id, is_fine) in [(".", false), ("..", false), ("", false), ("...", true), (".a", true)] {
            assert_eq!(named(id).is_ok(), is_fine, "{id}");
        }
    }
}
