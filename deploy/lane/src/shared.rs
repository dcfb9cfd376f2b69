//! A failure that several callers share.

use std::{error::Error, fmt, sync::Arc};

/// Stays in one place; to each who holds it, it looks like the cause of the failure that is shared.
#[derive(Debug)]
pub struct Shared<E>(Arc<E>);

impl<E: Error + 'static> Shared<E> {
    /// A share of this failure.
    pub fn of(failure: &Arc<E>) -> Self {
        Self(failure.clone())
    }

    fn cause(&self) -> &(dyn Error + 'static) {
        self.0.source().unwrap_or(&*self.0)
    }
}

impl<E: Error + 'static> fmt::Display for Shared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl<E: Error + 'static> Error for Shared<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause().source()
    }
}
