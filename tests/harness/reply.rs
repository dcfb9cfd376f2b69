//! An HTTP answer, read to its end.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// An HTTP answer, read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Reply {
    /// Reads an answer to its end.
    pub async fn read(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, body: response.bytes().await.expect("the body arrives whole") }
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {:?}", self.status, String::from_utf8_lossy(&self.body)))
    }

    /// A member of the body, as text.
    pub fn text(&self, member: &str) -> String {
        self.json()[member].as_str().unwrap_or_else(|| panic!("no text {member} in {}", self.json())).to_owned()
    }

    /// A header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|v| v.to_str().unwrap())
    }

    /// Says of itself that it comes from an earlier execution.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Panics unless the status is `status`; gives itself back.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// Panics unless this is the problem `status error/code`; gives itself back.
    #[track_caller]
    pub fn expect_problem(self, status: u16, error: &str, code: Option<&str>, retryable: bool) -> Self {
        let reply = self.expect(status);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        let problem = reply.json();
        assert_eq!(problem["error"], error, "{problem}");
        assert_eq!(problem.get("code").and_then(Value::as_str), code, "{problem}");
        assert_eq!(problem["retryable"], retryable, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["type"].as_str().is_some_and(|t| t.ends_with(&format!("/docs/errors#{error}"))), "{problem}");
        for member in ["title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|t| !t.is_empty()), "{member} in {problem}");
        }
        assert!(problem["details"]["reason"].is_string(), "{problem}");
        assert!(problem["traceId"].as_str().is_some_and(|t| t.len() == 32), "{problem}");
        reply
    }

    /// The same answer as `other`, byte for byte, as far as a replay carries it.
    #[track_caller]
    pub fn expect_same_as(self, other: &Reply) -> Self {
        assert_eq!(self.status, other.status);
        assert_eq!(self.body, other.body);
        for header in ["content-type", "location", "idempotency-key", "idempotency-key-expires"] {
            assert_eq!(self.header(header), other.header(header), "{header}");
        }
        self
    }
}
