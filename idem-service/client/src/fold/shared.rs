//! A failure that several callers share.

use std::{error::Error, fmt, sync::Arc};

use lane::{Failure, Lost};

use crate::ClientError;

/// The original stays in one place; every caller's error shows its cause.
#[derive(Debug)]
struct Shared(Arc<ClientError>);

impl Failure for ClientError {
    /// A refusal that may be about one call never gets here: the trip has asked for each by then.
    fn is_of_one(&self) -> bool {
        false
    }

    fn share(shared: &Arc<Self>) -> Self {
        match &**shared {
            Self::Unreachable(_) => Self::Unreachable(Box::new(Shared(shared.clone()))),
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

impl Shared {
    fn cause(&self) -> &(dyn Error + 'static) {
        self.0.source().unwrap_or(&*self.0)
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl Error for Shared {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause().source()
    }
}
