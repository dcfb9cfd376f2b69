//! A failure of the store that several callers share.

use std::sync::Arc;

use lane::{Failure, Lost, Shared};

use crate::store::StoreError;

impl Failure for StoreError {
    /// An outage is everybody's; an answer that is broken may be about one row.
    fn is_of_one(&self) -> bool {
        matches!(self, StoreError::Broken(_))
    }

    fn share(shared: &Arc<Self>) -> Self {
        let cause = Box::new(Shared::of(shared));
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
