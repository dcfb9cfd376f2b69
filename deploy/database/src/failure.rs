//! Why a statement of a running transaction failed, and whether the whole transaction is worth another attempt.

use crate::DatabaseError;

/// A failed statement: what the work is told, and what the attempt loop does about it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) error: DatabaseError,
}

/// What another attempt would be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Lost against a concurrent transaction (40001, 40P01): an attempt a moment later may win.
    Conflict,
    /// A unique key was taken. In READ COMMITTED that is how a race between a look and an insert shows, and the next
    /// look finds the row; when it is no race the second attempt fails the same way.
    Taken,
    /// The connection is gone, or is no longer one to the primary: another connection may do.
    Lost,
    /// Another attempt would end the same way, or would take too long.
    Final,
}

// === impl Failure ===

impl Failure {
    pub(crate) fn last(error: DatabaseError) -> Self {
        Self { class: Class::Final, error }
    }

    /// What a fault point makes of a statement or a commit that has not been sent.
    pub(crate) fn at_fault_point() -> Self {
        Self::last(DatabaseError::unavailable("it fails at a fault point"))
    }
}
