//! A running transaction, the same over both engines.

use crate::{DatabaseError, Row, Value};

/// A running transaction of [`Database::transact`](crate::Database::transact) or [`Database::read`](crate::Database::read).
///
/// Statements take `$1…$n` and [`params!`](crate::params). After a statement has failed the transaction is lost: every
/// later statement fails too and nothing is committed, even if the work answers `Ok`.
pub struct Tx<'t> {
    now: i64,
    engine: std::marker::PhantomData<&'t mut ()>,
}

// === impl Tx ===

impl Tx<'_> {
    /// The store's clock in microseconds since 1970, read once when the transaction began.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Runs a statement that answers no rows; returns how many rows it touched.
    pub async fn execute(&mut self, _sql: &str, _params: &[Value]) -> Result<u64, DatabaseError> {
        unimplemented!()
    }

    /// Runs a statement and returns its rows: a `SELECT`, or a write with `RETURNING`.
    pub async fn query(&mut self, _sql: &str, _params: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        unimplemented!()
    }

    /// Like [`query`](Self::query), for at most one row; several are an error.
    pub async fn query_opt(&mut self, _sql: &str, _params: &[Value]) -> Result<Option<Row>, DatabaseError> {
        unimplemented!()
    }
}
