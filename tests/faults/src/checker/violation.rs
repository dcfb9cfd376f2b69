//! A promise that was broken.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A key, as its tenant names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId {
    /// Whose.
    pub tenant: String,
    /// The key.
    pub key: String,
}

/// A broken promise, with enough to find its story.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Which rule.
    pub rule: String,
    /// What is wrong, in one sentence.
    pub what: String,
    /// The key concerned.
    pub key: Option<KeyId>,
    /// The order, payment or ticket type concerned.
    pub thing: Option<String>,
    /// When it was seen, by the campaign's clock.
    pub at_ms: u64,
}

impl Violation {
    /// One sentence under a rule.
    pub fn new(rule: &str, what: impl Into<String>) -> Self {
        Self { rule: rule.to_owned(), what: what.into(), key: None, thing: None, at_ms: 0 }
    }

    /// About this key.
    pub fn of(mut self, key: &KeyId) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// About this order, payment or ticket type.
    pub fn about(mut self, thing: impl Into<String>) -> Self {
        self.thing = Some(thing.into());
        self
    }

    /// Seen then.
    pub fn at(mut self, ms: u64) -> Self {
        self.at_ms = ms;
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{}] {}", self.rule, self.what)?;
        if let Some(KeyId { tenant, key }) = &self.key {
            write!(out, " (tenant {tenant}, key {key})")?;
        }
        if let Some(thing) = &self.thing {
            write!(out, " (about {thing})")?;
        }
        write!(out, " at {} ms", self.at_ms)
    }
}
