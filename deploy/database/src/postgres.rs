//! Postgres: a pool of connections to the primary, each of them verified, bounded in time, and never left in a transaction.

use tokio_postgres::types::{ToSql, Type};

use crate::{Clock, DatabaseError};

/// The primary of a Postgres. Clones are cheap and share the pool.
#[derive(Clone, Debug)]
pub struct Postgres {}

/// A connection lent by the pool, for one's own SQL in autocommit; it goes back when dropped.
///
/// Parameters name their types, so that statements work behind a pooler in transaction mode, where they are sent in
/// one piece, as well as on a direct connection, where they are prepared once and kept.
#[derive(Debug)]
pub struct Connection {}

// === impl Postgres ===

impl Postgres {
    /// A connection to the primary, or `Unavailable` within about a second.
    pub async fn client(&self) -> Result<Connection, DatabaseError> {
        unimplemented!()
    }

    /// The store's clock: own SQL adds its offset to `clock_timestamp()`.
    pub fn clock(&self) -> &Clock {
        unimplemented!()
    }
}

// === impl Connection ===

impl Connection {
    /// Runs a statement that changes nothing, so a lost connection is `Unavailable`.
    pub async fn read(
        &self,
        _sql: &str,
        _params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, DatabaseError> {
        unimplemented!()
    }

    /// Runs a statement that changes something and commits by itself, so a connection lost on the way is
    /// `CommitUnknown`. Deadlocks and serialisation failures are `Conflict`.
    pub async fn write(
        &self,
        _sql: &str,
        _params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, DatabaseError> {
        unimplemented!()
    }
}
