//! Ticket types: the catalogue, written by operators.

use super::{Answered, mutation::sent, orders::NAME_MAX, path::Segment};
use crate::{body::Object, orders::Orders, wire};
use axum::extract::State;
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use idem_layer::Problem;
use idem_proto::orders::v1::{self as proto, put_ticket_type_response::Outcome};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Names for people, in characters.
const TITLE_MAX: usize = 200;

/// Above these a value is a mistake; an order's total still fits a double exactly, as JSON readers use it.
pub(crate) const AMOUNT_MAX: i64 = 1_000_000_000_000;
const CAPACITY_MAX: i64 = 1_000_000_000;

/// What may stand in a path segment as it is (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `PUT /v1/ticket-types/{id}`
pub(super) async fn put(State(orders): State<Orders>, Segment(id): Segment, body: Bytes) -> Answered {
    let location = format!("/v1/ticket-types/{}", utf8_percent_encode(&id, SEGMENT));
    let answer = orders.put_ticket_type(read(id, &body)?).await?;
    match answer.outcome.ok_or(wire::Unreadable("no ticket type"))? {
        Outcome::Created(created) => {
            let created = wire::body(StatusCode::CREATED, &wire::TicketType::try_from(created)?);
            Ok(sent(wire::located(created, location)))
        }
        Outcome::Updated(updated) => Ok(sent(wire::body(StatusCode::OK, &wire::TicketType::try_from(updated)?))),
        Outcome::Refused(refusal) => Err(wire::refusal(refusal)?.into()),
    }
}

/// Whether the body is a ticket type, before anything is asked of the orders service.
pub(super) fn check(_: &Parts, body: &Bytes) -> Result<(), Problem> {
    read(String::new(), body).map(|_| ())
}

/// `GET /v1/ticket-types/{id}`
pub(super) async fn get(State(orders): State<Orders>, Segment(id): Segment) -> Answered {
    let found = orders.get_ticket_type(id).await?;
    let ticket_type = wire::TicketType::try_from(found.ticket_type.ok_or(wire::Unreadable("no ticket type"))?)?;
    Ok(sent(wire::body(StatusCode::OK, &ticket_type)))
}

fn read(id: String, body: &[u8]) -> Result<proto::TicketType, Problem> {
    // Clients and proxies resolve them as steps in a path before they ask, so nobody could ask for it.
    if matches!(id.as_str(), "." | "..") {
        return Err(Problem::invalid_request("the id in the path must not be `.` or `..`").reason("invalid_value"));
    }
    if id.len() > NAME_MAX || id.chars().any(char::is_control) {
        let detail = format!("the id in the path must have 1 to {NAME_MAX} bytes, none of them a control character");
        return Err(Problem::invalid_request(detail).reason("invalid_value"));
    }
    let mut root = Object::root(body)?;
    let venue_id = root.take("venueId")?.text(NAME_MAX)?;
    let name = root.take("name")?.text(TITLE_MAX)?;
    let mut price = root.take("price")?.object()?;
    let amount = price.take("amount")?.integer(0..=AMOUNT_MAX)?;
    let currency = price.take("currency")?.currency()?;
    price.finish()?;
    let capacity = root.take("capacity")?.integer(0..=CAPACITY_MAX)?;
    root.finish()?;
    let price = Some(proto::Money { amount, currency });
    Ok(proto::TicketType { id, venue_id, name, price, capacity, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        let Err(problem) = read("general".to_owned(), body.as_bytes()) else { return String::new() };
        let document: serde_json::Value = serde_json::from_slice(&problem.document("", "")).unwrap();
        document["detail"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_id_is_one_that_a_url_can_have() {
        let body = br#"{"venueId":"v","name":"n","price":{"amount":1,"currency":"EUR"},"capacity":0}"#;
        for (id, is_fine) in [(".", false), ("..", false), ("...", true), (".a", true), ("a/b", true), ("a\nb", false)]
        {
            assert_eq!(read(id.to_owned(), body).is_ok(), is_fine, "{id:?}");
        }
    }

    #[test]
    fn a_ticket_type_is_bounded_in_every_member() {
        let body = |amount: &str, currency: &str, capacity: &str| {
            format!(
                r#"{{"venueId":"v","name":"n","price":{{"amount":{amount},"currency":{currency}}},"capacity":{capacity}}}"#
            )
        };
        let table = [
            (body("0", "\"EUR\"", "0"), ""),
            (body("1000.0", "\"EUR\"", "1e2"), ""),
            (body("-1", "\"EUR\"", "0"), "`price.amount` must be an integer from 0 to 1000000000000"),
            (body("10.5", "\"EUR\"", "0"), "`price.amount` must be an integer from 0 to 1000000000000"),
            (body("1000000000001", "\"EUR\"", "0"), "`price.amount` must be an integer from 0 to 1000000000000"),
            (body("1", "\"eur\"", "0"), "`price.currency` must be an ISO 4217 code of three capital letters"),
            (body("1", "\"EURO\"", "0"), "`price.currency` must be an ISO 4217 code of three capital letters"),
            (body("1", "978", "0"), "`price.currency` must be a string"),
            (body("1", "\"EUR\"", "-1"), "`capacity` must be an integer from 0 to 1000000000"),
            (body("1", "\"EUR\"", "null"), "`capacity` must be an integer from 0 to 1000000000"),
            (r#"{"venueId":"v","name":"n","price":5,"capacity":0}"#.to_owned(), "`price` must be an object"),
            (r#"{"venueId":"v","price":{},"capacity":0}"#.to_owned(), "`name` is missing"),
            (
                r#"{"id":"x","venueId":"v","name":"n","price":{"amount":1,"currency":"EUR"},"capacity":0}"#.to_owned(),
                "`id` is not a member of this request",
            ),
        ];
        for (body, expected) in table {
            assert_eq!(refusal(&body), expected, "{body}");
        }
    }
}
