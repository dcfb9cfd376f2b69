//! A failure that several callers share.

use std::sync::Arc;

use lane::{Failure, Lost, Shared};

use crate::ClientError;

impl Failure for ClientError {
    /// A refusal that may be about one call never gets here: the trip has asked for each by then.
    fn is_of_one(&self) -> bool {
        false
    }

    fn share(shared: &Arc<Self>) -> Self {
        match &**shared {
            Self::Unreachable(_) => Self::Unreachable(Box::new(Shared::of(shared))),
            Self::Refused { code, reason, message, source } => {
                Self::Refused { code: *code, reason: *reason, message: message.clone(), source: source.clone() }
            }
            Self::Malformed(what) => Self::Malformed(what),
        }
    }

    fn lost(how: Lost) -> Self {
        match how {
            Lost::Ending | Lost::Panicked => Self::Unreachable(how.into()),
            Lost::Miscounted { .. } => Self::Malformed("not one outcome for each item"),
        }
    }
}
