//! The only place where a refusal becomes an HTTP status.

use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::StatusCode};
use http::header::RETRY_AFTER;
use serde::Serialize;

use crate::acquirer::EndlessOutage;
use crate::ledger::Refusal;
use crate::method::UnknownMethod;

/// A refusal as the caller sees it: a status, a stable name, and a sentence.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: &'static str,
    message: String,
    retry_after_seconds: Option<u64>,
}

#[derive(Serialize)]
struct Body {
    error: &'static str,
    message: String,
}

// === impl ApiError ===

impl ApiError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn internal() -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "the acquirer failed; nothing was charged")
    }

    pub(crate) fn outage(seconds_left: u64) -> Self {
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "outage", "the acquirer is out of service");
        ApiError { retry_after_seconds: Some(seconds_left.max(1)), ..error }
    }

    pub(crate) fn no_route() -> Self {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", "the acquirer has no such route")
    }

    pub(crate) fn no_method() -> Self {
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the route has no such method")
    }

    fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, error, message: message.into(), retry_after_seconds: None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Body { error: self.error, message: self.message })).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (status, error) = match refusal {
            Refusal::PaymentReused => (StatusCode::CONFLICT, "payment_id_reuse"),
            Refusal::RefundReused => (StatusCode::CONFLICT, "refund_id_reuse"),
            Refusal::NotApproved => (StatusCode::CONFLICT, "payment_not_approved"),
            Refusal::DecidedOtherwise => (StatusCode::CONFLICT, "payment_decided_otherwise"),
            Refusal::NoSuchPayment => (StatusCode::NOT_FOUND, "payment_not_found"),
            Refusal::NoSuchEvent => (StatusCode::NOT_FOUND, "event_not_found"),
            Refusal::OtherCurrency => (StatusCode::UNPROCESSABLE_ENTITY, "refund_currency_differs"),
            Refusal::OverRefund => (StatusCode::UNPROCESSABLE_ENTITY, "refund_exceeds_payment"),
        };
        ApiError::new(status, error, refusal.to_string())
    }
}

impl From<UnknownMethod> for ApiError {
    fn from(unknown: UnknownMethod) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, "unknown_method", unknown.to_string())
    }
}

impl From<EndlessOutage> for ApiError {
    fn from(endless: EndlessOutage) -> Self {
        ApiError::invalid(endless.to_string())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        ApiError::invalid(rejection.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        let error = ApiError::invalid(rejection.body_text());
        ApiError { status: rejection.status(), ..error }
    }
}
