//! Orders: place, read, confirm, cancel, payment link.

use super::{
    Answered,
    mutation::{Mutation, answered, sent},
    path::Id,
};
use crate::{auth::Principal, body::Object, orders::Orders, wire};
use axum::extract::State;
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use idem_layer::Problem;
use idem_proto::orders::v1::{self as proto, create_payment_link_response::Outcome};
use std::collections::HashSet;

/// Ids that operators choose, in characters.
pub(super) const NAME_MAX: usize = 100;

/// Items of an order, and seats of an item.
pub(crate) const COUNT_MAX: i64 = 50;

/// `POST /v1/orders`
pub(super) async fn place(State(orders): State<Orders>, mutation: Mutation, body: Bytes) -> Answered {
    let (venue_id, items) = read(&body)?;
    let message = proto::PlaceOrderRequest { operation: Some(mutation.operation), venue_id, items };
    answered(orders.place_order(message, mutation.deadline).await)
}

/// Whether the body is an order, before its key is reserved.
pub(super) fn check(_: &Parts, body: &Bytes) -> Result<(), Problem> {
    read(body).map(|_| ())
}

/// `GET /v1/orders/{id}`
pub(super) async fn get(State(orders): State<Orders>, principal: Principal, Id(id): Id) -> Answered {
    let found = orders.get_order(principal.tenant.as_str(), id).await?;
    Ok(sent(wire::order(found.order.ok_or(wire::Unreadable("no order"))?)?))
}

/// `POST /v1/orders/{id}/confirm`
pub(super) async fn confirm(State(orders): State<Orders>, mutation: Mutation, Id(id): Id) -> Answered {
    let message = proto::ConfirmOrderRequest { operation: Some(mutation.operation), order_id: id };
    answered(orders.confirm_order(message, mutation.deadline).await)
}

/// `POST /v1/orders/{id}/cancel`
pub(super) async fn cancel(State(orders): State<Orders>, mutation: Mutation, Id(id): Id) -> Answered {
    let message = proto::CancelOrderRequest { operation: Some(mutation.operation), order_id: id };
    answered(orders.cancel_order(message, mutation.deadline).await)
}

/// `POST /v1/orders/{id}/payment-link`
pub(super) async fn payment_link(State(orders): State<Orders>, principal: Principal, Id(id): Id) -> Answered {
    let answer = orders.create_payment_link(principal.tenant.as_str(), id).await?;
    match answer.outcome.ok_or(wire::Unreadable("no payment link"))? {
        Outcome::Link(link) => Ok(sent(wire::body(StatusCode::OK, &wire::PaymentLink::try_from(link)?))),
        Outcome::Refused(refusal) => Err(wire::refusal(refusal)?.into()),
    }
}

fn read(body: &[u8]) -> Result<(String, Vec<proto::PlaceOrderItem>), Problem> {
    let mut order = Object::root(body)?;
    let venue_id = order.take("venueId")?.text(NAME_MAX)?;
    let listed = order.take("items")?.list(1..=COUNT_MAX as usize)?;
    order.finish()?;
    let mut seen = HashSet::new();
    let mut items = Vec::with_capacity(listed.len());
    for item in listed {
        let mut item = item.object()?;
        let ticket_type = item.take("ticketTypeId")?;
        let ticket_type_id = ticket_type.text(NAME_MAX)?;
        let quantity = item.take("quantity")?.integer(1..=COUNT_MAX)?;
        item.finish()?;
        if !seen.insert(ticket_type_id.clone()) {
            return Err(ticket_type.refused(format_args!("be listed once; put all its seats into one item")));
        }
        let quantity = u32::try_from(quantity).expect("at most COUNT_MAX");
        items.push(proto::PlaceOrderItem { ticket_type_id, quantity });
    }
    Ok((venue_id, items))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(body: &str) -> String {
        let Err(problem) = read(body.as_bytes()) else { return "accepted".to_owned() };
        assert_eq!((problem.status().as_u16(), problem.error()), (400, "invalid_request"));
        let document: serde_json::Value = serde_json::from_slice(&problem.document("", "")).unwrap();
        document["detail"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_order_is_read_whatever_the_spelling_of_its_numbers() {
        for quantity in ["2", "2.0", "2e0", "0.2E+1", "20e-1"] {
            let body = format!(r#"{{"items":[{{"quantity":{quantity},"ticketTypeId":"general"}}],"venueId":"demo"}}"#);
            let (venue, items) = read(body.as_bytes()).unwrap();
            assert_eq!((venue.as_str(), items[0].ticket_type_id.as_str(), items[0].quantity), ("demo", "general", 2));
        }
    }

    #[test]
    fn an_order_that_makes_no_sense_is_refused_with_the_member_named() {
        let item = |item: &str| format!(r#"{{"venueId":"demo","items":[{item}]}}"#);
        let many = |n: usize| {
            let items = (0..n).map(|i| format!(r#"{{"ticketTypeId":"t{i}","quantity":1}}"#));
            item(&items.collect::<Vec<_>>().join(","))
        };
        let quantity = "`items[0].quantity` must be an integer from 1 to 50";
        let table = [
            (r#"{"items":[]}"#.to_owned(), "`venueId` is missing"),
            (r#"{"venueId":"demo"}"#.to_owned(), "`items` is missing"),
            (item(""), "`items` must have 1 to 50 elements"),
            (many(51), "`items` must have 1 to 50 elements"),
            (many(50), "accepted"),
            (item("1"), "`items[0]` must be an object"),
            (item(r#"{"quantity":1}"#), "`items[0].ticketTypeId` is missing"),
            (item(r#"{"ticketTypeId":"a"}"#), "`items[0].quantity` is missing"),
            (item(r#"{"ticketTypeId":"a","quantity":0}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":51}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":50}"#), "accepted"),
            (item(r#"{"ticketTypeId":"a","quantity":1.5}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":-1}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":"1"}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":null}"#), quantity),
            (item(r#"{"ticketTypeId":"a","quantity":1,"seat":7}"#), "`items[0].seat` is not a member of this request"),
            (
                item(r#"{"ticketTypeId":"a","quantity":1},{"ticketTypeId":"a","quantity":2}"#),
                "`items[1].ticketTypeId` must be listed once; put all its seats into one item",
            ),
            (
                r#"{"venueId":"demo","items":[{"ticketTypeId":"a","quantity":1}],"note":""}"#.to_owned(),
                "`note` is not a member of this request",
            ),
        ];
        for (body, expected) in table {
            assert_eq!(detail(&body), expected, "{body}");
        }
    }
}
