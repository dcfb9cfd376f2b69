//! What can go wrong in a use case. Expected refusals are answers, not errors.

use std::sync::Arc;

use database::DatabaseError;
use lane::{Failure, Lost};

use crate::wire::Unreadable;

/// Why a use case gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OrdersError {
    /// The store failed, or cannot be reached.
    #[error("the store failed")]
    Database(#[from] DatabaseError),
    /// A higher fencing token was seen for this operation.
    #[error("a higher fencing token was seen for this operation")]
    StaleToken,
    /// The operation id belongs to something else.
    #[error("the operation id was used for another kind of operation, tenant or request")]
    OperationReused,
    /// Nothing under this id for this tenant.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The acquirer cannot be asked now.
    #[error("the acquirer cannot be asked now: {0}")]
    AcquirerUnreachable(String),
    /// The deadline is over, or too near to start.
    #[error("the deadline was over before the work was done")]
    Deadline,
    /// The caller may not act for the tenant of this operation.
    #[error("the caller's grant does not cover this tenant")]
    ScopeNotGranted,
    /// A stored row makes no sense.
    #[error("a stored row makes no sense: {0}")]
    Corrupt(&'static str),
    /// A kept result cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Seats are counted as held whose holds are over: they are swept, then the work runs again. Never leaves the crate.
    #[error("holds that are over are in the way")]
    HoldsOver(String),
    /// The task that carried this call together with others came to nothing.
    #[error("the work that was shared with other calls came to nothing")]
    Lost(#[from] Lost),
}

impl Failure for OrdersError {
    fn is_of_one(&self) -> bool {
        match self {
            Self::Database(error) => !error.is_transient(),
            Self::Corrupt(_) | Self::Unreadable(_) | Self::Lost(Lost::Panicked) => true,
            _ => false,
        }
    }

    fn share(shared: &Arc<Self>) -> Self {
        Self::clone(shared)
    }

    fn lost(how: Lost) -> Self {
        how.into()
    }
}
