//! What an answer means for its key.

use serde_json::Value;

use crate::history::Answer;

/// What an answer says about the key it was given under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Decided for good: replayed for the retention.
    Final,
    /// 202: the acquirer has not decided.
    Undecided,
    /// Refused, and nothing happened: the same key executes again.
    Refused,
    /// Being executed, recovered, or waiting for the acquirer.
    Open,
    /// The key belongs to another request.
    Mismatch,
    /// Refused before the key was reserved.
    Unreserved,
    /// A failure after the key was reserved.
    Failed,
}

/// A problem document's members, as far as anything depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// `error`
    pub error: String,
    /// `code`
    pub code: String,
    /// `details.reason`
    pub reason: String,
    /// `retryable`
    pub is_retryable: bool,
}

/// Headers that a replay carries as they were.
const REPLAYED_HEADERS: [&str; 5] = ["content-type", "location", "link", "content-language", "content-disposition"];

impl Class {
    /// Reads an answer under a key.
    pub fn of(answer: &Answer) -> Self {
        let problem = Problem::of(answer);
        let is = |error: &str, code: &str| problem.error == error && problem.code == code;
        match answer.status {
            202 => Self::Undecided,
            200..=299 | 402 => Self::Final,
            422 => Self::Mismatch,
            404 => Self::Refused,
            409 if is("conflict", "request_in_progress") || is("conflict", "outcome_pending") => Self::Open,
            // Money moved, and came back: these are kept.
            409 if is("hold_expired", "refunded") || is("conflict", "payment_refunded") => Self::Final,
            409 if is("conflict", "not_pending") && problem.reason == "refunded" => Self::Final,
            409 => Self::Refused,
            400..=499 => Self::Unreserved,
            503 if problem.error == "idempotency_unavailable" => Self::Unreserved,
            _ => Self::Failed,
        }
    }

    /// The key was certainly reserved for the request that was answered like this.
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Final | Self::Undecided | Self::Refused | Self::Open | Self::Failed)
    }
}

impl Problem {
    /// Reads the body of an answer; empty when it is no problem document.
    pub fn of(answer: &Answer) -> Self {
        let body = answer.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            error: text(&body["error"]),
            code: text(&body["code"]),
            reason: text(&body["details"]["reason"]),
            is_retryable: body["retryable"].as_bool().unwrap_or_default(),
        }
    }

    /// `error/code`, as it is written in reports.
    pub fn name(&self) -> String {
        if self.code.is_empty() { self.error.clone() } else { format!("{}/{}", self.error, self.code) }
    }
}

/// Whether it says until when it is kept, which an answer that is not stored cannot.
pub(super) fn is_stored(answer: &Answer) -> bool {
    answer.header("idempotency-key-expires").is_some()
}

/// How two final answers of one key differ; none when they are the same.
///
/// Byte for byte, with one exception: a problem that was given before it was stored is recovered with another trace id.
pub(super) fn difference(one: &Answer, other: &Answer) -> Option<String> {
    if one.status != other.status {
        return Some(format!("status {} and {}", one.status, other.status));
    }
    for name in REPLAYED_HEADERS {
        if one.header(name) != other.header(name) {
            return Some(format!("{name} {:?} and {:?}", one.header(name), other.header(name)));
        }
    }
    let were_both_stored = is_stored(one) && is_stored(other);
    if were_both_stored && one.header("idempotency-key-expires") != other.header("idempotency-key-expires") {
        return Some("they are kept until different moments".to_owned());
    }
    let is_same = one.body == other.body
        || (!were_both_stored
            && one.status >= 400
            && without_trace(one).is_some_and(|it| Some(it) == without_trace(other)));
    (!is_same).then(|| format!("bodies {} and {}", one.body, other.body))
}

fn without_trace(answer: &Answer) -> Option<Value> {
    let mut body = answer.json();
    body.as_object_mut()?.remove("traceId");
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{json, problem};

    #[test]
    fn answers_mean_for_their_key_what_the_policy_says() {
        use Class::{Failed, Final, Mismatch, Open, Refused, Undecided, Unreserved};
        let table = [
            (json(201, "{}"), Final),
            (json(200, "{}"), Final),
            (json(202, "{}"), Undecided),
            (problem(402, "payment_declined", ""), Final),
            (problem(404, "not_found", ""), Refused),
            (problem(409, "sold_out", ""), Refused),
            (problem(409, "conflict", "not_pending"), Refused),
            (problem(409, "conflict", "payment_in_progress"), Refused),
            (problem(409, "hold_expired", "not_charged"), Refused),
            (problem(409, "hold_expired", "refunded"), Final),
            (problem(409, "conflict", "payment_refunded"), Final),
            (problem(409, "conflict", "request_in_progress"), Open),
            (problem(409, "conflict", "outcome_pending"), Open),
            (problem(422, "idempotency_key_reuse", ""), Mismatch),
            (problem(400, "invalid_request", ""), Unreserved),
            (problem(503, "idempotency_unavailable", ""), Unreserved),
            (problem(503, "upstream_unavailable", "in_doubt"), Failed),
            (problem(500, "internal_error", ""), Failed),
        ];
        for (answer, class) in table {
            assert_eq!(Class::of(&answer), class, "{answer:?}");
        }
        let mut refunded = problem(409, "conflict", "not_pending");
        refunded.body = refunded.body.replace("\"traceId\"", "\"details\":{\"reason\":\"refunded\"},\"traceId\"");
        assert_eq!(Class::of(&refunded), Final);
    }

    #[test]
    fn stored_answers_are_the_same_only_byte_for_byte() {
        let mut stored = problem(402, "payment_declined", "");
        stored.headers.insert("idempotency-key-expires".into(), "tomorrow".into());
        assert_eq!(difference(&stored, &stored), None);
        let mut other = stored.clone();
        other.body = other.body.replace("t-0", "t-1");
        assert!(difference(&stored, &other).is_some());
        // Given before it was stored, then recovered.
        other.headers.remove("idempotency-key-expires");
        assert_eq!(difference(&stored, &other), None);
        other.body = other.body.replace("payment_declined", "payment_approved");
        assert!(difference(&stored, &other).is_some());

        for (name, value) in [("location", "/v1/orders/2"), ("idempotency-key-expires", "today")] {
            let mut other = stored.clone();
            other.headers.insert(name.into(), value.into());
            assert!(difference(&stored, &other).is_some(), "{name}");
        }
        // A success has no trace id, so it is the same or it is not.
        let (unstored, other) = (json(201, r#"{"id":"1"}"#), json(201, r#"{"id":"1","traceId":"t"}"#));
        assert!(difference(&unstored, &other).is_some());
    }
}
