//! Payments: pay an order, read a payment.

use super::{
    Answered,
    mutation::{Mutation, answered, sent},
    path::{Id, id},
};
use crate::{auth::Principal, body::Object, orders::Orders, wire};
use axum::extract::State;
use bytes::Bytes;
use http::request::Parts;
use idem_layer::Problem;
use idem_proto::orders::v1 as proto;

/// Tokens of payment methods, in characters; also what is read of an order id before it is looked up.
const TEXT_MAX: usize = 200;

/// `POST /v1/payments`
pub(super) async fn pay(State(orders): State<Orders>, mutation: Mutation, body: Bytes) -> Answered {
    let (order_id, payment_method) = read(&body)?;
    let message = proto::PayRequest { operation: Some(mutation.operation), order_id: id(&order_id)?, payment_method };
    answered(orders.pay(message, mutation.deadline).await)
}

/// Whether the body is a payment, before its key is reserved.
pub(super) fn check(_: &Parts, body: &Bytes) -> Result<(), Problem> {
    let (order_id, _) = read(body)?;
    id(&order_id).map(|_| ())
}

/// `GET /v1/payments/{id}`
pub(super) async fn get(State(orders): State<Orders>, principal: Principal, Id(id): Id) -> Answered {
    let found = orders.get_payment(principal.tenant.as_str(), id).await?;
    Ok(sent(wire::payment(found.payment.ok_or(wire::Unreadable("no payment"))?)?))
}

fn read(body: &[u8]) -> Result<(String, String), Problem> {
    let mut payment = Object::root(body)?;
    let order_id = payment.take("orderId")?.text(TEXT_MAX)?;
    let payment_method = payment.take("paymentMethod")?.text(TEXT_MAX)?;
    payment.finish()?;
    Ok((order_id, payment_method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_names_an_order_and_a_method_and_nothing_else() {
        let table = [
            (r#"{"orderId":"o","paymentMethod":"pm_approved"}"#, true),
            (r#"{"orderId":"o"}"#, false),
            (r#"{"paymentMethod":"pm_approved"}"#, false),
            (r#"{"orderId":1,"paymentMethod":"pm_approved"}"#, false),
            (r#"{"orderId":"o","paymentMethod":""}"#, false),
            (r#"{"orderId":"o","paymentMethod":["pm_approved"]}"#, false),
            (r#"{"orderId":"o","paymentMethod":"pm_approved","amount":1}"#, false),
            ("", false),
        ];
        for (body, is_accepted) in table {
            assert_eq!(read(body.as_bytes()).is_ok(), is_accepted, "{body}");
        }
    }
}
