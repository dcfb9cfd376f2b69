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

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
