//! A failure of the store that several callers share.

use std::fmt;
use std::sync::Arc;

use lane::{Failure, Lost};

use crate::store::StoreError;

/// The original stays in one place; every caller's error shows its cause.
#[derive(Clone, Debug)]
struct Shared(Arc<StoreError>);

impl Failure for StoreError {
    /// An outage is everybody's; an answer that is broken may be about one row.
    fn is_of_one(&self) -> bool {
        matches!(self, StoreError::Broken(_))
    }

    fn share(shared: &Arc<Self>) -> Self {
        let cause = Box::new(Shared(shared.clone()));
        match **shared {
            StoreError::Unavailable(_) => StoreError::Unavailable(cause),
            StoreError::Broken(_) => StoreError::Broken(cause),
        }
    }

    fn lost(how: Lost) -> Self {
        match how {
            Lost::Ending => StoreError::Unavailable(how.into()),
            Lost::Panicked | Lost::Miscounted { .. } => StoreError::Broken(how.into()),
        }
    }
}

impl Shared {
    fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        match &*self.0 {
            StoreError::Unavailable(cause) | StoreError::Broken(cause) => &**cause,
        }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().source()
    }
}
