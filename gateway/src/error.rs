//! What went wrong, for the client: the only place that turns failures into answers.
//!
//! The client gets a stable name and a next step, the log gets the cause, never the reverse.

pub(crate) mod catalogue;

use crate::orders::CallError;
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use catalogue::Kind;
use http::{HeaderValue, StatusCode, header};
use idem_layer::{
    Problem,
    ports::{Label, Outcome},
};
use std::{any::Any, error::Error as _};

/// Problems carry references relative to the API, which are right behind every proxy.
const DOCS_BASE: &str = "";

/// A request that was refused or failed, and what the holder of its key does about it.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Problem,
    label: Label,
}

/// The answer for a problem, with the trace id of the current span.
pub(crate) fn respond(problem: &Problem) -> Response {
    problem.render(DOCS_BASE, &chassis::trace::current_trace_id()).map(Body::from)
}

/// Renders a problem for an answer that is made without a request.
pub(crate) fn render(problem: &Problem, trace_id: &str) -> http::Response<Bytes> {
    problem.render(DOCS_BASE, trace_id)
}

/// The fallback of the router.
pub(crate) async fn not_found() -> Response {
    respond(&catalogue::NOT_FOUND.problem("there is nothing under this path"))
}

/// The fallback of every route; the router adds `Allow`.
pub(crate) async fn method_not_allowed() -> Response {
    respond(&catalogue::METHOD_NOT_ALLOWED.problem("use one of the methods in Allow"))
}

/// What a panic is answered with. The panic itself has been logged by the hook; its text stays here.
pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request handler panicked");
    metrics::counter!("gateway_panics_total").increment(1);
    respond(&catalogue::INTERNAL.problem("the request could not be answered; quote the traceId"))
}

// === impl Kind ===

impl Kind {
    /// A problem of this kind; `detail` is about this one.
    pub(crate) fn problem(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
        let status = StatusCode::from_u16(self.status).expect("the catalogue has HTTP statuses");
        let mut problem = Problem::new(status, self.error, self.title, detail);
        if let Some(code) = self.code {
            problem = problem.code(code);
        }
        if self.retryable { problem.retryable() } else { problem }
    }
}

// === impl Failure ===

impl Failure {
    /// Whether it happened is not known.
    pub(crate) fn unknown() -> Self {
        Self { problem: Problem::in_doubt(), label: Label::Unknown }
    }
}

impl From<Problem> for Failure {
    /// A refusal by the gateway itself: this request did nothing.
    fn from(problem: Problem) -> Self {
        Self { problem, label: Label::NotRun }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::NotFound => return catalogue::NOT_FOUND.problem("there is nothing under this id").into(),
            CallError::Invalid(detail) => return Problem::invalid_request(detail.clone()).into(),
            CallError::NothingHappened(_) | CallError::Fenced | CallError::Unknown(_) => {}
        }
        // The status says what the transport met; it may name hosts, so the client never sees it.
        tracing::warn!(error = %error, cause = error.source(), "the orders service gave no answer");
        match error {
            CallError::NothingHappened(_) => Problem::nothing_happened().into(),
            // Nothing happened under this token, but something may have under the later holder's. Unknown leads the layer to
            // ask, and to learn that it has been superseded.
            _ => Self::unknown(),
        }
    }
}

impl From<crate::wire::Unreadable> for Failure {
    fn from(error: crate::wire::Unreadable) -> Self {
        tracing::error!(%error, "an answer of the orders service cannot be read");
        Self::unknown()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = respond(&self.problem);
        let outcome = Outcome { label: self.label, is_replayed: false, resource_id: String::new() };
        response.extensions_mut().insert(outcome);
        response
    }
}

/// A 401 for a webhook, whose sender does not authenticate with an API key.
pub(crate) fn bad_signature(detail: &'static str) -> Failure {
    let challenge = HeaderValue::from_static("Acquirer-Signature");
    catalogue::UNAUTHORIZED.problem(detail).header(header::WWW_AUTHENTICATE, challenge).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_panic_tells_the_client_nothing_but_where_to_ask() {
        let response = panicked(Box::new("secret of the inside"));
        assert_eq!(response.status(), 500);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("internal_error") && body.contains("traceId") && !body.contains("secret"), "{body}");
    }

    #[test]
    fn what_can_have_happened_decides_the_answer_and_the_label() {
        let status = || tonic::Status::unavailable("10.0.0.1 refused");
        let table = [
            (CallError::NothingHappened(status()), 503, Label::NotRun, "nothing_happened"),
            (CallError::Unknown(status()), 503, Label::Unknown, "in_doubt"),
            (CallError::Fenced, 503, Label::Unknown, "in_doubt"),
            (CallError::NotFound, 404, Label::NotRun, "not_found"),
            (CallError::Invalid("`items` is empty".to_owned()), 400, Label::NotRun, "`items` is empty"),
        ];
        for (error, status, label, text) in table {
            let failure = Failure::from(error);
            let document = failure.problem.document("", "");
            let document = std::str::from_utf8(&document).unwrap();
            assert_eq!((failure.problem.status().as_u16(), failure.label), (status, label));
            assert!(document.contains(text) && !document.contains("10.0.0.1"), "{document}");
        }
    }
}
