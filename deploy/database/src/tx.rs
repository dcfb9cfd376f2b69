//! A running transaction, the same over both engines.

use std::sync::{Mutex, PoisonError};

use fault_point::fault_point;
use rusqlite::Connection;

use crate::failure::Failure;
use crate::postgres::Session;
use crate::{DatabaseError, Row, Value, rows, sqlite};

/// A running transaction of [`Database::transact`](crate::Database::transact) or
/// [`Database::read`](crate::Database::read).
///
/// Statements take `$1…$n` and [`params!`](crate::params). After a statement has failed the transaction is lost: every
/// later statement fails too and nothing is committed, even if the work answers `Ok`. (Postgres has it so; SQLite
/// follows, lest a text that passes on one engine fails on the other.)
pub struct Tx<'t> {
    name: &'static str,
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
        self.admit(sql)?;
        let done = match &mut self.engine {
            Engine::Sqlite(connection) => sqlite::statements::execute(alone(connection), sql, params),
            Engine::Postgres(session) => session.execute(sql, params).await,
        };
        done.map_err(|failure| self.fail(failure))
    }

    /// Runs a statement and returns its rows: a `SELECT`, or a write with `RETURNING`.
    pub async fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.admit(sql)?;
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

    /// Runs a statement that answers no rows over many: `{rows}` in its text stands for them, and `params` come before. Returns how
    /// many rows it touched. No rows, no statement.
    ///
    /// SQLite runs it once a row, so what it does with one must not depend on the others.
    pub async fn execute_rows(
        &mut self,
        sql: &str,
        params: &[Value],
        rows: &[Vec<Value>],
    ) -> Result<u64, DatabaseError> {
        if rows.is_empty() {
            return Ok(0);
        }
        self.admit(sql)?;
        let columns = rows::columns(sql, rows).map_err(|failure| self.fail(failure))?;
        let done = match &mut self.engine {
            Engine::Sqlite(connection) => {
                let (connection, sql) = (alone(connection), rows::as_one(sql, params.len(), &columns));
                let each = |row: &Vec<Value>| sqlite::statements::execute(connection, &sql, &[params, row].concat());
                rows.iter().map(each).sum()
            }
            Engine::Postgres(session) => {
                let sql = rows::as_arrays(sql, params.len(), &columns);
                session.execute_rows(&sql, params, &columns, rows).await
            }
        };
        done.map_err(|failure| self.fail(failure))
    }

    /// Like [`execute_rows`](Self::execute_rows), and returns the rows that the statement answers: a `SELECT`, or a write with
    /// `RETURNING`. They come in no order that could be relied on.
    pub async fn query_rows(
        &mut self,
        sql: &str,
        params: &[Value],
        rows: &[Vec<Value>],
    ) -> Result<Vec<Row>, DatabaseError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.admit(sql)?;
        let columns = rows::columns(sql, rows).map_err(|failure| self.fail(failure))?;
        let found = match &mut self.engine {
            Engine::Sqlite(connection) => {
                let (connection, sql) = (alone(connection), rows::as_one(sql, params.len(), &columns));
                let each = |row: &Vec<Value>| sqlite::statements::query(connection, &sql, &[params, row].concat());
                rows.iter().map(each).collect::<Result<Vec<_>, _>>().map(|found| found.concat())
            }
            Engine::Postgres(session) => {
                let sql = rows::as_arrays(sql, params.len(), &columns);
                session.query_rows(&sql, params, &columns, rows).await
            }
        };
        found.map_err(|failure| self.fail(failure))
    }

    /// Refuses every statement after one has failed.
    fn admit(&mut self, sql: &str) -> Result<(), DatabaseError> {
        if let Some(failure) = &self.failure {
            return Err(failure.error.clone());
        }
        fault_point!("{}: {}", self.name, named(sql) => Err(self.fail(Failure::at_fault_point())));
        Ok(())
    }

    fn fail(&mut self, failure: Failure) -> DatabaseError {
        let error = failure.error.clone();
        self.failure = Some(failure);
        error
    }
}

impl<'t> Tx<'t> {
    pub(crate) fn new(name: &'static str, now: i64, engine: Engine<'t>) -> Self {
        Self { name, now, engine, failure: None }
    }

    /// The work is over: the failure that has ended this transaction, if one has. `is_done` when the work wants its commit.
    pub(crate) fn end(self, is_done: bool) -> Option<Failure> {
        if is_done && self.failure.is_none() {
            fault_point!("{}: commit", self.name => Some(Failure::at_fault_point()));
        }
        self.failure
    }
}

/// The name of a statement: the comment on its first line.
fn named(sql: &str) -> &str {
    sql.lines().next().and_then(|line| line.strip_prefix("-- ")).unwrap_or("statement")
}

fn alone<'c>(connection: &'c mut Mutex<&mut Connection>) -> &'c Connection {
    connection.get_mut().unwrap_or_else(PoisonError::into_inner)
}
