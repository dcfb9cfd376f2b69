//! Stores for tests: made empty, gone when dropped. Only with the feature `testing`.

use std::ops::Deref;

use crate::StoreUrl;

/// An empty store of a test's own; dropping it deletes it.
#[derive(Debug)]
pub struct Scratch {
    url: StoreUrl,
}

/// A fresh database on the server of `IDEM_TEST_POSTGRES`, with `name` in its name.
///
/// # Panics
/// When the variable is unset or the server cannot be reached: a test that needs Postgres never skips.
pub async fn postgres_url(_name: &str) -> Scratch {
    unimplemented!()
}

/// A fresh file in a directory of its own.
pub fn sqlite_url() -> Scratch {
    unimplemented!()
}

impl Scratch {
    /// Where the store is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }
}

impl Deref for Scratch {
    type Target = StoreUrl;

    fn deref(&self) -> &StoreUrl {
        &self.url
    }
}
