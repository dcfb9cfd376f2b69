//! The three numbers of a grant: which operation, which attempt, and the token that fences.

use std::fmt;

use uuid::Uuid;

/// Names one intent, from a key's first reservation through every retry, release and reclaim.
///
/// All downstream ids derive from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OperationId(pub Uuid);

/// Names one try at Reserve or Reclaim, minted by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AttemptId(pub Uuid);

/// Per-key number, raised at every grant; it never falls while the record lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FencingToken(pub i64);

impl FencingToken {
    /// The token of a key's first grant.
    pub const FIRST: FencingToken = FencingToken(1);

    /// The token of the next grant.
    #[must_use]
    pub fn next(self) -> FencingToken {
        // A key that was granted 2^63 times does not exist; saturating keeps the function total.
        FencingToken(self.0.saturating_add(1))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
