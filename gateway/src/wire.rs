//! What the orders service says, as REST answers.
//!
//! Rendering a kept result is one pure function of the result and its label: the handler that made it, a retry that recovers
//! it and the reconciler give the same status, headers and bytes, but for the trace id of problems.

mod json;

pub(crate) use json::{PaymentLink, TicketType, Unreadable};

use crate::error::{self, catalogue, catalogue::Kind};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use idem_layer::{
    Problem,
    ports::{Label, Outcome},
};
use idem_proto::orders::v1::{self as proto, OperationKind, RefusalReason, result};
use serde::Serialize;

/// Payments that are open are worth asking about again after this.
const PAYMENT_RETRY_AFTER: u32 = 5;

/// The answer for a result, and what the holder of the key does with it.
pub(crate) fn render(
    result: proto::Result,
    label: proto::Label,
    is_replayed: bool,
    trace_id: &str,
) -> Result<(Response<Bytes>, Outcome), Unreadable> {
    let operation = result.operation();
    let (response, resource_id, is_open) = match result.kind.ok_or(Unreadable("a result without a kind"))? {
        result::Kind::Order(order) => order_answer(operation, json::Order::try_from(order)?),
        result::Kind::Payment(payment) => {
            let is_open = payment.status() == proto::PaymentStatus::Pending;
            payment_answer(json::Payment::try_from(payment)?, is_open)
        }
        result::Kind::CheckIn(check_in) => {
            let check_in = json::CheckIn::try_from(check_in)?;
            (body(StatusCode::OK, &check_in), check_in.ticket_id, false)
        }
        result::Kind::Refusal(it) => (error::render(&refusal(it)?, trace_id), String::new(), false),
    };
    let label = match label {
        proto::Label::Final => Label::Final,
        // What was answered with success is given again as it was, even if this try found nothing left to do.
        proto::Label::NoEffect if response.status().is_success() => Label::Final,
        proto::Label::NoEffect => Label::NoEffect,
        proto::Label::Unknown if is_open => Label::Undecided,
        proto::Label::Unknown | proto::Label::Unspecified => Label::Unknown,
    };
    Ok((response, Outcome { label, is_replayed, resource_id }))
}

/// The problem for a refusal.
pub(crate) fn refusal(refusal: proto::Refusal) -> Result<Problem, Unreadable> {
    let reason = refusal.reason();
    let kind = kind(reason).ok_or(Unreadable("a refusal without a reason"))?;
    let detail = if refusal.detail.is_empty() { kind.title.to_owned() } else { refusal.detail };
    let problem = kind.problem(detail);
    Ok(match reason {
        // Only what another party may end soon is worth waiting for; a transition that is refused stays refused.
        RefusalReason::PaymentInProgress => problem.retry_after(PAYMENT_RETRY_AFTER),
        // The same refusal for the client, but its money has moved and come back.
        RefusalReason::NotPendingRefunded => problem.reason("refunded"),
        _ => problem,
    })
}

/// A body with its status.
pub(crate) fn body(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    let bytes = serde_json::to_vec(value).expect("strings, numbers and lists always have a JSON form");
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Adds `Location`; `path` is made of ids.
pub(crate) fn located(mut response: Response<Bytes>, path: String) -> Response<Bytes> {
    if let Ok(value) = HeaderValue::try_from(path) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

/// An order as it is read.
pub(crate) fn order(order: proto::Order) -> Result<Response<Bytes>, Unreadable> {
    Ok(body(StatusCode::OK, &json::Order::try_from(order)?))
}

/// A payment as it is read.
pub(crate) fn payment(payment: proto::Payment) -> Result<Response<Bytes>, Unreadable> {
    Ok(body(StatusCode::OK, &json::Payment::try_from(payment)?))
}

fn order_answer(operation: OperationKind, order: json::Order) -> (Response<Bytes>, String, bool) {
    let response = match operation {
        OperationKind::PlaceOrder => located(body(StatusCode::CREATED, &order), format!("/v1/orders/{}", order.id)),
        _ => body(StatusCode::OK, &order),
    };
    (response, order.id, false)
}

fn payment_answer(payment: json::Payment, is_open: bool) -> (Response<Bytes>, String, bool) {
    let status = if is_open { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let mut response = located(body(status, &payment), format!("/v1/payments/{}", payment.id));
    if is_open {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(PAYMENT_RETRY_AFTER));
    }
    (response, payment.id, is_open)
}

fn kind(reason: RefusalReason) -> Option<&'static Kind> {
    Some(match reason {
        RefusalReason::NotFound => &catalogue::NOT_FOUND,
        RefusalReason::SoldOut => &catalogue::SOLD_OUT,
        RefusalReason::Invalid => &catalogue::INVALID_REQUEST,
        RefusalReason::NotPending | RefusalReason::NotPendingRefunded => &catalogue::NOT_PENDING,
        RefusalReason::NotCancellable => &catalogue::NOT_CANCELLABLE,
        RefusalReason::NotPaid => &catalogue::NOT_PAID,
        RefusalReason::CapacityInUse => &catalogue::CAPACITY_IN_USE,
        RefusalReason::PaymentInProgress => &catalogue::PAYMENT_IN_PROGRESS,
        RefusalReason::PaymentDeclined => &catalogue::PAYMENT_DECLINED,
        RefusalReason::HoldExpiredNotCharged => &catalogue::HOLD_NOT_CHARGED,
        RefusalReason::HoldExpiredRefunded => &catalogue::HOLD_REFUNDED,
        RefusalReason::PaymentRefunded => &catalogue::PAYMENT_REFUNDED,
        RefusalReason::Unspecified => return None,
    })
}

#[cfg(test)]
mod tests;
