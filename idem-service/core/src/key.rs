//! Scopes and idempotency keys, and how a key is written in a header.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use sha2::{Digest, Sha256};

const KEY_CHARS_MAX: usize = 200;
const SCOPE_BYTES_MAX: usize = 200;

/// Who owns a key: at most 200 bytes, for example `rest/tenant-a`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scope(Arc<str>);

/// The client's name for one intent: 1 to 200 Unicode scalar values, none of them a control character. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(Arc<str>);

/// A scope that is out of bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the scope must be 1 to {SCOPE_BYTES_MAX} bytes without control characters")]
pub struct ScopeError;

/// Why a key was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// Nothing in it.
    #[error("the idempotency key is empty; send 1 to {KEY_CHARS_MAX} characters")]
    Empty,
    /// Over 200 characters.
    #[error("the idempotency key has more than {KEY_CHARS_MAX} characters")]
    TooLong,
    /// A character of category Cc.
    #[error("the idempotency key contains a control character")]
    ControlCharacter,
    /// Bytes that are not UTF-8.
    #[error("the idempotency key is not valid UTF-8")]
    NotUtf8,
    /// A quoted string without an end, with an unknown escape, or with something after it.
    #[error("the idempotency key starts with a quote but is not a well-formed quoted string")]
    MalformedQuotes,
}

impl Scope {
    /// Checks the bounds.
    pub fn new(scope: impl Into<String>) -> Result<Self, ScopeError> {
        let scope = scope.into();
        let fits = (1..=SCOPE_BYTES_MAX).contains(&scope.len()) && !scope.chars().any(char::is_control);
        if fits { Ok(Self(scope.into())) } else { Err(ScopeError) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl IdempotencyKey {
    /// A key as it is, without quotes to read.
    pub fn new(key: impl Into<String>) -> Result<Self, KeyError> {
        let key = key.into();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        if key.chars().any(char::is_control) {
            return Err(KeyError::ControlCharacter);
        }
        if key.chars().nth(KEY_CHARS_MAX).is_some() {
            return Err(KeyError::TooLong);
        }
        Ok(Self(key.into()))
    }

    /// The key in a header line: bare (`abc`), or a structured-field string (`"abc"`), whose parameters are ignored.
    pub fn from_header(line: &[u8]) -> Result<Self, KeyError> {
        let line = std::str::from_utf8(line).map_err(|_| KeyError::NotUtf8)?;
        // Only the whitespace that HTTP allows around a field value; other spaces belong to the key.
        let line = line.trim_matches([' ', '\t']);
        match line.strip_prefix('"') {
            Some(rest) => Self::new(unquote(rest)?),
            None => Self::new(line),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands before the closing quote, given what stands after the opening one.
fn unquote(rest: &str) -> Result<String, KeyError> {
    let mut text = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => text.push(escaped),
                _ => return Err(KeyError::MalformedQuotes),
            },
            Some(char) => text.push(char),
            None => return Err(KeyError::MalformedQuotes),
        }
    }
    if are_parameters(chars.as_str()) { Ok(text) } else { Err(KeyError::MalformedQuotes) }
}

/// Structured-field parameters: nothing, or `;name` and `;name=value`. A comma outside quotes would start a second key.
fn are_parameters(rest: &str) -> bool {
    let rest = rest.trim_start_matches(' ');
    let Some(mut rest) = rest.strip_prefix(';') else { return rest.is_empty() };
    loop {
        rest = rest.trim_start_matches(' ');
        let name_len = rest.find([';', '=', ',', '"', ' ']).unwrap_or(rest.len());
        if name_len == 0 {
            return false;
        }
        rest = &rest[name_len..];
        if let Some(value) = rest.strip_prefix('=') {
            let Some(after) = after_value(value) else { return false };
            rest = after;
        }
        rest = rest.trim_start_matches(' ');
        match rest.strip_prefix(';') {
            Some(next) => rest = next,
            None => return rest.is_empty(),
        }
    }
}

/// What follows a parameter's value: a quoted string, a display string (RFC 9651), or anything up to the next separator.
fn after_value(value: &str) -> Option<&str> {
    if let Some(display) = value.strip_prefix("%\"") {
        // It has no escapes: a backslash is a backslash.
        return display.split_once('"').map(|(_, after)| after);
    }
    let Some(quoted) = value.strip_prefix('"') else {
        let len = value.find([';', ',', '"', ' ']).unwrap_or(value.len());
        return if len == 0 { None } else { Some(&value[len..]) };
    };
    let mut escaped = false;
    for (at, char) in quoted.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(&quoted[at + 1..]),
            _ => {}
        }
    }
    None
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// A key may be guessable or personal: it never reaches a log by accident.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} bytes)", self.0.len())
    }
}

/// Tells keys apart in traces and logs, and is no help in guessing one: the first 8 bytes of a SHA-256, in hexadecimal.
pub fn key_hash(scope: &Scope, key: &IdempotencyKey) -> String {
    let mut digest = Sha256::new();
    digest.update((scope.as_str().len() as u64).to_be_bytes());
    digest.update(scope.as_str());
    digest.update(key.as_str());
    digest.finalize()[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_and_quoted_lines_name_the_same_key() {
        let cases: &[(&[u8], &str)] = &[
            (b"abc", "abc"),
            (b"  abc\t", "abc"),
            (b"\"abc\"", "abc"),
            (b"\"a\\\"b\\\\c\"", "a\"b\\c"),
            (b"\"abc\";v=1", "abc"),
            (b"\"abc\";v=%\"f%c3%bc; \\\";w", "abc"),
            (b"\"abc\" ; v=1; w=\"x,;\\\"y\";z", "abc"),
            (b"K, K2", "K, K2"),
            (b"a b", "a b"),
            (b"abc;v=1", "abc;v=1"),
            (b"a\"b", "a\"b"),
            ("é∑🎟".as_bytes(), "é∑🎟"),
            ("\"é\"".as_bytes(), "é"),
            (b"\" a \"", " a "),
        ];
        for (line, key) in cases {
            assert_eq!(IdempotencyKey::from_header(line).map(|k| k.0), Ok((*key).into()), "{line:?}");
        }
    }

    #[test]
    fn malformed_lines_are_refused_with_their_reason() {
        let long = "é".repeat(201);
        let cases: &[(&[u8], KeyError)] = &[
            (b"", KeyError::Empty),
            (b"  ", KeyError::Empty),
            (b"\"\"", KeyError::Empty),
            (b"\"abc", KeyError::MalformedQuotes),
            (b"\"abc\"d", KeyError::MalformedQuotes),
            (b"\"abc\", \"d\"", KeyError::MalformedQuotes),
            (b"\"abc\";", KeyError::MalformedQuotes),
            (b"\"abc\";v=", KeyError::MalformedQuotes),
            (b"\"abc\";v=\"1", KeyError::MalformedQuotes),
            (b"\"abc\";v=%\"1", KeyError::MalformedQuotes),
            (b"\"abc\";v=1, \"d\"", KeyError::MalformedQuotes),
            (b"\"a\\bc\"", KeyError::MalformedQuotes),
            (b"\"abc\\", KeyError::MalformedQuotes),
            (b"\"", KeyError::MalformedQuotes),
            (b"a\tb", KeyError::ControlCharacter),
            (b"a\x7fb", KeyError::ControlCharacter),
            ("a\u{85}b".as_bytes(), KeyError::ControlCharacter),
            (b"a\xffb", KeyError::NotUtf8),
            (long.as_bytes(), KeyError::TooLong),
        ];
        for (line, error) in cases {
            assert_eq!(IdempotencyKey::from_header(line).map(|k| k.0), Err(*error), "{line:?}");
        }
    }

    #[test]
    fn two_hundred_scalar_values_fit_whatever_their_bytes() {
        assert!(IdempotencyKey::new("🎟".repeat(200)).is_ok());
        assert_eq!(IdempotencyKey::new("🎟".repeat(201)), Err(KeyError::TooLong));
    }
}
