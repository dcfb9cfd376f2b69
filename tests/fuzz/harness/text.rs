//! Bytes that are shown so that a person can read them.

use std::fmt;

/// Bytes, shown as an escaped literal.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Text {
    fn from(text: &[u8]) -> Self {
        Self(text.to_vec())
    }
}
