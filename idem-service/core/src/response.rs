//! The stored answer.

use std::sync::Arc;

use bytes::Bytes;

/// The largest body that is stored.
pub const BODY_MAX: usize = 1024 * 1024;
// A stored answer carries a handful of headers; the bound keeps a row small whatever a caller sends.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 * 1024;
const RESOURCE_ID_MAX: usize = 200;

/// The answer that a holder stores and every later Reserve replays, byte for byte. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    status: u16,
    headers: Arc<[(String, String)]>,
    body: Bytes,
    resource_id: Arc<str>,
}

/// A response that is out of bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    /// Not an HTTP status.
    #[error("the status must be between 100 and 599, not {0}")]
    Status(u32),
    /// More headers, or longer ones, than a stored answer may have.
    #[error("the headers must be at most {HEADERS_MAX}, of {HEADER_BYTES_MAX} bytes together")]
    Headers,
    /// A status that an HTTP answer cannot end with.
    #[error("the status must be between 200 and 599, not {0}: 1xx only announces an answer")]
    Interim(u16),
    /// A status that does not end an intent.
    #[error(
        "{0} is no final answer: 2xx is, without 202, and 4xx, without 401, 407, 408, 421, 425, 429 and 431, which are about one try"
    )]
    NotFinal(u16),
    /// A header name that HTTP does not allow.
    #[error("{0:?} is not the name of a header")]
    HeaderName(String),
    /// A header name or value with a control character, or an empty name.
    #[error("the header {0:?} has an empty name or a control character")]
    Header(String),
    /// The body is over 1 MiB.
    #[error("the body must be at most {BODY_MAX} bytes, not {0}")]
    Body(usize),
    /// The resource id is over 200 bytes or has a control character.
    #[error("the resource id must be at most {RESOURCE_ID_MAX} bytes without control characters")]
    ResourceId,
}

impl Response {
    /// Checks the bounds.
    pub fn new(
        status: u32,
        headers: Vec<(String, String)>,
        body: Bytes,
        resource_id: String,
    ) -> Result<Self, ResponseError> {
        let status = match u16::try_from(status) {
            Ok(status @ 100..=599) => status,
            _ => return Err(ResponseError::Status(status)),
        };
        if headers.len() > HEADERS_MAX
            || headers.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() > HEADER_BYTES_MAX
        {
            return Err(ResponseError::Headers);
        }
        if let Some((name, _)) = headers.iter().find(|(n, v)| n.is_empty() || has_control(n) || has_control(v)) {
            return Err(ResponseError::Header(name.clone()));
        }
        if body.len() > BODY_MAX {
            return Err(ResponseError::Body(body.len()));
        }
        if resource_id.len() > RESOURCE_ID_MAX || has_control(&resource_id) {
            return Err(ResponseError::ResourceId);
        }
        Ok(Self { status, headers: headers.into(), body, resource_id: resource_id.into() })
    }

    /// Checks that it can be given as an HTTP answer. The bounds alone are what may stand in a store: earlier releases kept more.
    pub fn over_http(self) -> Result<Self, ResponseError> {
        if self.status < 200 {
            return Err(ResponseError::Interim(self.status));
        }
        match self.headers.iter().find(|(name, _)| !is_token(name)) {
            Some((name, _)) => Err(ResponseError::HeaderName(name.clone())),
            None => Ok(self),
        }
    }

    /// Checks that it ends an intent: retries are answered with it for good. See [`is_final`].
    pub fn for_good(self) -> Result<Self, ResponseError> {
        if is_final(self.status) { Ok(self) } else { Err(ResponseError::NotFinal(self.status)) }
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Headers, in order.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The id of what was made, for operators.
    pub fn resource_id(&self) -> &str {
        &self.resource_id
    }
}

/// Whether an answer with this status says for good what became of an intent: it was carried out, or it was refused. Not 202, which
/// leaves it open; not a status that is about one try (who asked, how fast, over which connection); not 3xx, which leaves it to
/// another request; and not 5xx, after which a client tries again.
pub fn is_final(status: u16) -> bool {
    match status {
        202 | 401 | 407 | 408 | 421 | 425 | 429 | 431 => false,
        200..=299 | 400..=499 => true,
        _ => false,
    }
}

/// As RFC 9110 has it for names (section 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u32, header: &str) -> Response {
        Response::new(status, vec![(header.to_owned(), "v".to_owned())], Bytes::new(), String::new()).unwrap()
    }

    #[test]
    fn what_http_cannot_answer_is_refused_and_may_still_stand_in_a_store() {
        for status in [200, 202, 204, 302, 404, 500, 599] {
            assert!(response(status, "content-type").over_http().is_ok(), "{status}");
        }
        for status in [100, 101, 102, 103, 199] {
            assert_eq!(response(status, "a").over_http(), Err(ResponseError::Interim(status as u16)));
        }
        for name in ["set cookie", "a:b", "ä", "(a)", "a,b", "\"a\""] {
            assert_eq!(response(200, name).over_http(), Err(ResponseError::HeaderName(name.to_owned())));
        }
        for status in [0, 99, 600, 65_536 + 200] {
            let refused = Response::new(status, Vec::new(), Bytes::new(), String::new());
            assert_eq!(refused, Err(ResponseError::Status(status)));
        }
    }

    #[test]
    fn an_intent_ends_with_what_was_done_or_refused() {
        for status in [200, 201, 204, 400, 402, 403, 404, 409, 410, 422, 499] {
            assert!(response(status, "a").for_good().is_ok(), "{status}");
        }
        for status in [100, 101, 103, 199, 202, 301, 303, 304, 401, 407, 408, 421, 425, 429, 431, 500, 503, 599] {
            assert_eq!(response(status, "a").for_good(), Err(ResponseError::NotFinal(status as u16)));
        }
    }
}
