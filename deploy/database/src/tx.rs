//! A running transaction, the same over both engines.

use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use crate::failure::Failure;
use crate::postgres::Session;
use crate::{DatabaseError, Row, Value, sqlite};

/// A running transaction of [`Database::transact`](crate::Database::transact) or
/// [`Database::read`](crate::Database::read).
///
/// Statements take `$1…$n` and [`params!`](crate::params). After a statement has failed the transaction is lost: every
/// later statement fails too and nothing is committed, even if the work answers `Ok`. (Postgres has it so; SQLite
/// follows, lest a text that passes on one engine fails on the other.)
pub struct Tx<'t> {
    now: i64,
    engine: Engine<'t>,
    failure: Option<Failure>,
}

/// What runs the statements.
pub(crate) enum Engine<'t> {
    /// Never locked: the mutex makes a `&Tx` one that may be held over an `.await`, which a bare connection forbids.
    Sqlite(Mutex<&'t mut Connection>),
    Postgres(&'t Session),
}

// === impl Tx ===

impl Tx<'_> {
    /// The store's clock in microseconds since 1970, read once when the transaction began.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Runs a statement that answers no rows; returns how many rows it touched.
    pub async fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DatabaseError> {
        self.refuse_after_failure()?;
        let done = match &mut self.engine {
            Engine::Sqlite(connection) => sqlite::statements::execute(alone(connection), sql, params),
            Engine::Postgres(session) => session.execute(sql, params).await,
        };
        done.map_err(|failure| self.fail(failure))
    }

    /// Runs a statement and returns its rows: a `SELECT`, or a write with `RETURNING`.
    pub async fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.refuse_after_failure()?;
        let rows = match &mut self.engine {
            Engine::Sqlite(connection) => sqlite::statements::query(alone(connection), sql, params),
            Engine::Postgres(session) => session.query(sql, params).await,
        };
        rows.map_err(|failure| self.fail(failure))
    }

    /// Like [`query`](Self::query), for at most one row; several are an error.
    pub async fn query_opt(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>, DatabaseError> {
        let mut rows = self.query(sql, params).await?;
        if rows.len() > 1 {
            let error = DatabaseError::Decode(format!("{} rows where at most one was expected", rows.len()));
            return Err(self.fail(Failure::last(error)));
        }
        Ok(rows.pop())
    }

    fn refuse_after_failure(&self) -> Result<(), DatabaseError> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error.clone()))
    }

    fn fail(&mut self, failure: Failure) -> DatabaseError {
        let error = failure.error.clone();
        self.failure = Some(failure);
        error
    }
}

impl<'t> Tx<'t> {
    pub(crate) fn new(now: i64, engine: Engine<'t>) -> Self {
        Self { now, engine, failure: None }
    }

    /// The failure that has ended this transaction, if one has.
    pub(crate) fn into_failure(self) -> Option<Failure> {
        self.failure
    }
}

fn alone<'c>(connection: &'c mut Mutex<&mut Connection>) -> &'c Connection {
    connection.get_mut().unwrap_or_else(PoisonError::into_inner)
}
