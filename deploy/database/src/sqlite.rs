//! SQLite: one writer thread with group commit, readers beside it, a lock that keeps other processes out.

use crate::DatabaseError;

/// An open SQLite file. Clones are cheap and share it; the last one to go closes it.
#[derive(Clone, Debug)]
pub struct Sqlite {}

// === impl Sqlite ===

impl Sqlite {
    /// Runs `job` on the writer, inside a savepoint of its own: `Ok` keeps its changes, `Err` undoes them. Whatever
    /// waits at the same time shares one commit, and everybody is answered after it; a failed commit fails all.
    ///
    /// When the caller's future is dropped, a queued job may still run and commit.
    pub async fn write<T, E>(
        &self,
        _job: impl FnOnce(&rusqlite::Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        unimplemented!()
    }

    /// Runs `job` over one consistent snapshot on a connection that cannot write.
    pub async fn read<T, E>(
        &self,
        _job: impl FnOnce(&rusqlite::Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        unimplemented!()
    }

    /// The store's clock, in microseconds since 1970.
    pub fn now(&self) -> i64 {
        unimplemented!()
    }
}
