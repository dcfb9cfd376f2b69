//! What went wrong, for the client: RFC 9457 problem documents with a stable reason and a next step.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use idem_core::{KeyError, json::JsonError};
use serde::Serialize;

use crate::body::BODY_MAX;

/// The media type of a problem document.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Where the idempotency policy is described, as a `Link` on problems about keys.
const DESCRIBED_BY: HeaderValue = HeaderValue::from_static("</docs/idempotency>; rel=\"describedby\"");

/// A refusal, not rendered yet. The same value can be shown under any base URL and trace id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    // Boxed: it travels as the error of many results, most of which are fine.
    content: Box<Content>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    status: StatusCode,
    error: &'static str,
    code: Option<&'static str>,
    title: &'static str,
    detail: Cow<'static, str>,
    reason: Option<Cow<'static, str>>,
    is_retryable: bool,
    retry_after: Option<u32>,
    is_about_keys: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    details: Details<'a>,
    retryable: bool,
    trace_id: &'a str,
}

#[derive(Serialize)]
struct Details<'a> {
    reason: &'a str,
}

impl Problem {
    /// A problem that is not retryable. `error` is its stable name, and its anchor under `/docs/errors`; `title` says what kind
    /// of problem it is, `detail` what to do about this one.
    pub fn new(
        status: StatusCode,
        error: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let content = Content {
            status,
            error,
            code: None,
            title,
            detail: detail.into(),
            reason: None,
            is_retryable: false,
            retry_after: None,
            is_about_keys: false,
            headers: Vec::new(),
        };
        Self { content: content.into() }
    }

    /// Tells apart problems that share an `error`.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.content.code = Some(code);
        self
    }

    /// `details.reason`, for programs. Without it, it is the code, else the error.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.content.reason = Some(reason.into());
        self
    }

    /// The same request with the same key may be sent again unchanged.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.content.is_retryable = true;
        self
    }

    /// `Retry-After`, in whole seconds; at least one.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.content.retry_after = Some(seconds.max(1));
        self
    }

    /// It is about idempotency keys: the answer links to the policy.
    #[must_use]
    pub fn about_keys(mut self) -> Self {
        self.content.is_about_keys = true;
        self
    }

    /// One more header on the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.content.headers.push((name, value));
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.content.status
    }

    /// The stable name.
    pub fn error(&self) -> &'static str {
        self.content.error
    }

    /// The answer. `docs_base` goes before `/docs/errors#…`; empty leaves a relative reference.
    pub fn render(&self, docs_base: &str, trace_id: &str) -> Response<Bytes> {
        let mut response = Response::new(self.document(docs_base, trace_id));
        *response.status_mut() = self.content.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(seconds) = self.content.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.content.is_about_keys {
            headers.insert(header::LINK, DESCRIBED_BY);
        }
        for (name, value) in &self.content.headers {
            headers.append(name, value.clone());
        }
        response
    }

    /// The body of the answer.
    pub fn document(&self, docs_base: &str, trace_id: &str) -> Bytes {
        let document = Document {
            r#type: format!("{docs_base}/docs/errors#{}", self.content.error),
            title: self.content.title,
            status: self.content.status.as_u16(),
            detail: &self.content.detail,
            error: self.content.error,
            code: self.content.code,
            details: Details {
                reason: self.content.reason.as_deref().or(self.content.code).unwrap_or(self.content.error),
            },
            retryable: self.content.is_retryable,
            trace_id,
        };
        serde_json::to_vec(&document).expect("strings and numbers always have a JSON form").into()
    }
}

// === the problems of this layer ===

impl Problem {
    /// 400: the route requires a key.
    pub fn missing_key() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "missing_idempotency_key",
            "An idempotency key is required",
            "send the header Idempotency-Key with a value of your own, new for each purchase and the same for its retries",
        )
        .about_keys()
    }

    /// 400: the key cannot be read.
    pub fn invalid_key(error: KeyError) -> Self {
        let reason = match error {
            KeyError::Empty => "empty",
            KeyError::TooLong => "too_long",
            KeyError::ControlCharacter => "control_character",
            KeyError::NotUtf8 => "not_utf8",
            KeyError::MalformedQuotes => "malformed_quotes",
        };
        Self::new(StatusCode::BAD_REQUEST, "invalid_idempotency_key", INVALID_KEY, error.to_string())
            .reason(reason)
            .about_keys()
    }

    /// 400: more than one key.
    pub fn several_keys() -> Self {
        let detail = "the header Idempotency-Key must be sent once";
        Self::new(StatusCode::BAD_REQUEST, "invalid_idempotency_key", INVALID_KEY, detail)
            .reason("several_lines")
            .about_keys()
    }

    /// 400: the request cannot be understood.
    pub fn invalid_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", "The request is not valid", detail)
    }

    /// 400: the body has no one meaning as JSON.
    pub fn invalid_json(error: &JsonError) -> Self {
        let reason = match error {
            JsonError::Syntax(_) | JsonError::Truncated => "malformed_json",
            JsonError::NotUtf8(_) => "not_utf8",
            JsonError::DuplicateMember(_) => "duplicate_member",
            JsonError::LoneSurrogate(_) => "lone_surrogate",
            JsonError::TooDeep => "nested_too_deep",
        };
        Self::invalid_request(error.to_string()).reason(reason)
    }

    /// 408: the body did not arrive in time.
    pub fn request_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "The body did not arrive in time",
            "nothing was executed; send the same request with the same key again, on another connection",
        )
        .retryable()
        .retry_after(1)
    }

    /// 413: the body is over the limit, as sent or as decoded.
    pub fn payload_too_large() -> Self {
        let detail = format!("the body must be at most {BODY_MAX} bytes, also when decoded");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "The body is too large", detail)
    }

    /// 415: the body is not JSON, or in an encoding that is not read.
    pub fn unsupported_media_type(detail: &'static str) -> Self {
        let title = "The body is in a format that is not read here";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", title, detail)
    }

    /// 409: the key's holder is presumed alive.
    pub fn request_in_progress() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "conflict",
            "The request is in progress",
            "an earlier request with this key has not finished; send it again after the time in Retry-After",
        )
        .code("request_in_progress")
        .retryable()
        .retry_after(1)
        .about_keys()
    }

    /// 409: begun, and not decided yet.
    pub fn outcome_pending() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "conflict",
            "The outcome is pending",
            "the operation has begun and is not decided yet; send the same request again after the time in Retry-After",
        )
        .code("outcome_pending")
        .retryable()
        .retry_after(5)
        .about_keys()
    }

    /// 422: the key is bound to another request.
    pub fn key_reuse() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reuse",
            "The idempotency key was used for another request",
            "this key was used with another method, path, query or body; use a new key for each new purchase",
        )
        .about_keys()
    }

    /// 503: the key could not be reserved.
    pub fn idempotency_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "idempotency_unavailable",
            "The idempotency key could not be reserved",
            "nothing was executed; send the same request with the same key again",
        )
        .retryable()
        .retry_after(1)
    }

    /// 503: nothing happened.
    pub fn nothing_happened() -> Self {
        Self::upstream_unavailable("this try did nothing; send the same request with the same key again")
            .code("nothing_happened")
    }

    /// 503: something may have happened.
    pub fn in_doubt() -> Self {
        Self::upstream_unavailable(
            "whether the operation was carried out is not known yet; send the same request with the same key again to learn it",
        )
        .code("in_doubt")
    }

    fn upstream_unavailable(detail: &'static str) -> Self {
        let title = "The service is not available";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "upstream_unavailable", title, detail).retryable().retry_after(1)
    }
}

const INVALID_KEY: &str = "The idempotency key is not valid";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_every_member_of_the_contract() {
        let response = Problem::request_in_progress().render("https://api.example", "4bf9");
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(response.headers()["link"], "</docs/idempotency>; rel=\"describedby\"");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "https://api.example/docs/errors#conflict");
        assert_eq!(body["title"], "The request is in progress");
        assert_eq!(body["status"], 409);
        assert!(body["detail"].as_str().unwrap().contains("Retry-After"));
        assert_eq!(body["error"], "conflict");
        assert_eq!(body["code"], "request_in_progress");
        assert_eq!(body["details"]["reason"], "request_in_progress");
        assert_eq!(body["retryable"], true);
        assert_eq!(body["traceId"], "4bf9");
    }

    #[test]
    fn a_reason_is_always_there_and_a_code_only_where_it_tells_apart() {
        let of = |problem: Problem| serde_json::from_slice::<serde_json::Value>(&problem.document("", "")).unwrap();
        let reuse = of(Problem::key_reuse());
        assert_eq!((reuse.get("code"), &reuse["details"]["reason"]), (None, &"idempotency_key_reuse".into()));
        assert_eq!(reuse["type"], "/docs/errors#idempotency_key_reuse");
        assert_eq!(of(Problem::invalid_key(KeyError::TooLong))["details"]["reason"], "too_long");
        assert_eq!(of(Problem::in_doubt())["details"]["reason"], "in_doubt");
    }

    #[test]
    fn whatever_is_said_about_a_key_is_400_409_422_or_503_and_never_500() {
        let invalid = [
            KeyError::Empty,
            KeyError::TooLong,
            KeyError::ControlCharacter,
            KeyError::NotUtf8,
            KeyError::MalformedQuotes,
        ];
        let others = [
            Problem::missing_key(),
            Problem::several_keys(),
            Problem::request_in_progress(),
            Problem::outcome_pending(),
            Problem::key_reuse(),
            Problem::idempotency_unavailable(),
            Problem::nothing_happened(),
            Problem::in_doubt(),
        ];
        for problem in invalid.map(Problem::invalid_key).into_iter().chain(others) {
            assert!([400, 409, 422, 503].contains(&problem.status().as_u16()), "{problem:?}");
        }
    }

    #[test]
    fn retryable_and_retry_after_follow_the_table() {
        let table = [
            (Problem::missing_key(), 400, false, None),
            (Problem::several_keys(), 400, false, None),
            (Problem::invalid_request("x"), 400, false, None),
            (Problem::request_timeout(), 408, true, Some("1")),
            (Problem::payload_too_large(), 413, false, None),
            (Problem::unsupported_media_type("x"), 415, false, None),
            (Problem::request_in_progress(), 409, true, Some("1")),
            (Problem::outcome_pending(), 409, true, Some("5")),
            (Problem::key_reuse(), 422, false, None),
            (Problem::idempotency_unavailable(), 503, true, Some("1")),
            (Problem::nothing_happened(), 503, true, Some("1")),
            (Problem::in_doubt(), 503, true, Some("1")),
        ];
        for (problem, status, retryable, retry_after) in table {
            let response = problem.render("", "");
            assert_eq!(response.status(), status, "{problem:?}");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["retryable"], retryable, "{problem:?}");
            let header = response.headers().get("retry-after").map(|v| v.to_str().unwrap());
            assert_eq!(header, retry_after, "{problem:?}");
        }
    }
}
