//! One connection on loan: its statements are bounded in time, and those of its age share its fate when it is lost.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{Metrics, Object};
use futures::FutureExt;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement};
use tracing::warn;

use super::failure::is_definite;
use super::values::{self, Typed};
use crate::error::chain;
use crate::failure::{Class, Failure};
use crate::{DatabaseError, Kind, Row, Value};

/// A connection to the primary, out of the pool. It goes back when dropped, in whatever state; a lease sees to that.
pub(crate) struct Session {
    client: Object,
    settings: Settings,
    /// Something was asked and is not answered yet.
    is_in_flight: AtomicBool,
    /// Not to be used again.
    is_broken: AtomicBool,
    generation: Generation,
}

/// How a session treats its statements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Behind a pooler that gives every transaction another server: nothing may be kept on the server between them.
    pub(super) is_pooled: bool,
    /// After this the server ends a statement.
    pub(super) statement_timeout: Duration,
    /// After this the server ends a session that sits idle in a transaction.
    pub(super) idle_in_transaction_timeout: Duration,
}

/// When a connection was lost last: older ones share its fate, and are replaced rather than tried one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation {
    lost_at: Arc<Mutex<Option<Instant>>>,
}

/// What a lost connection leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stake {
    /// Nothing that is not rolled back.
    Nothing,
    /// A commit that may or may not have happened.
    Commit,
}

// === impl Session ===

impl Session {
    pub(super) fn new(client: Object, settings: Settings, generation: Generation) -> Self {
        Self { client, settings, is_in_flight: AtomicBool::new(false), is_broken: AtomicBool::new(false), generation }
    }

    /// The driver's client, for what needs no bounds.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs a statement without rows; returns how many rows it touched.
    pub(crate) async fn execute(&self, sql: &str, params: &[Value]) -> Result<u64, Failure> {
        self.execute_typed(sql, &values::typed(params)).await
    }

    /// Runs a statement without rows over an array a column, which come after the parameters.
    pub(crate) async fn execute_rows(
        &self,
        sql: &str,
        params: &[Value],
        columns: &[Kind],
        rows: &[Vec<Value>],
    ) -> Result<u64, Failure> {
        let arrays = values::arrays(columns, rows);
        let params = values::typed(params).into_iter().chain(values::typed_arrays(&arrays)).collect::<Vec<_>>();
        self.execute_typed(sql, &params).await
    }

    /// Like [`execute_rows`](Self::execute_rows), and collects the rows of its answer.
    pub(crate) async fn query_rows(
        &self,
        sql: &str,
        params: &[Value],
        columns: &[Kind],
        rows: &[Vec<Value>],
    ) -> Result<Vec<Row>, Failure> {
        let arrays = values::arrays(columns, rows);
        let params = values::typed(params).into_iter().chain(values::typed_arrays(&arrays)).collect::<Vec<_>>();
        values::rows(&self.query_typed(Stake::Nothing, sql, &params).await?)
    }

    async fn execute_typed(&self, sql: &str, params: &[Typed<'_>]) -> Result<u64, Failure> {
        if self.settings.is_pooled {
            return self.bounded(Stake::Nothing, self.client.execute_typed(sql, params)).await;
        }
        let statement = self.prepared(sql, params).await?;
        let bare = params.iter().map(|(param, _)| *param);
        self.bounded(Stake::Nothing, self.client.execute_raw(&statement, bare)).await
    }

    /// Runs a statement and collects its rows.
    pub(crate) async fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Failure> {
        let rows = self.query_typed(Stake::Nothing, sql, &values::typed(params)).await?;
        values::rows(&rows)
    }

    /// Runs a statement and collects its rows as the driver has them.
    pub(super) async fn query_typed(
        &self,
        stake: Stake,
        sql: &str,
        params: &[Typed<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        if self.settings.is_pooled {
            return self.bounded(stake, self.client.query_typed(sql, params)).await;
        }
        let statement = self.prepared(sql, params).await?;
        let bare: Vec<_> = params.iter().map(|(param, _)| *param).collect();
        self.bounded(stake, self.client.query(&statement, &bare)).await
    }

    /// Begins a transaction and reads the server's clock in the same round trip; microseconds since 1970.
    pub(super) async fn begin(&self, sql: &str) -> Result<i64, Failure> {
        let answer = self.bounded(Stake::Nothing, self.client.simple_query(sql)).await?;
        let now = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        now.ok_or_else(|| Failure::last(DatabaseError::Decode("the server told no time".into())))
    }

    /// Commits. Once it is on its way it is neither cancelled nor repeated.
    pub(super) async fn commit(&self) -> Result<(), Failure> {
        self.bounded(Stake::Commit, self.client.batch_execute("COMMIT")).await
    }

    /// Ends a transaction that has nothing to lose. The words are sent and their answer is not awaited: what follows on
    /// this connection comes after them anyway.
    pub(super) fn send(&self, end: &'static str) {
        // A connection that cannot even take the words is closed, which ends the transaction too.
        let _ = self.client.batch_execute(end).now_or_never();
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.is_in_flight.load(Ordering::SeqCst)
    }

    /// Whether this connection may be used again, as far as one can tell without asking the server.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::SeqCst)
            && !self.client.is_closed()
            && !self.generation.is_over(Object::metrics(&self.client))
    }

    /// Closes the connection instead of giving it back.
    pub(super) fn close(self) {
        drop(Object::take(self.client));
    }

    /// Takes this connection out of use, and those that are as old with it.
    pub(super) fn give_up(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.generation.end(Object::metrics(&self.client));
    }

    /// Runs a request for no longer than the server would, plus a second in case the server has fallen silent.
    pub(super) async fn bounded<T>(
        &self,
        stake: Stake,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        if self.client.is_closed() {
            self.give_up();
            return Err(lost("the connection was closed by the server"));
        }
        let limit = self.settings.statement_timeout + Duration::from_secs(1);
        self.is_in_flight.store(true, Ordering::SeqCst);
        let answer = timeout(limit, request).await;
        self.is_in_flight.store(false, Ordering::SeqCst);
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(stake, error)),
            Err(_) => Err(self.silent(stake, limit)),
        }
    }

    fn failed(&self, stake: Stake, error: Error) -> Failure {
        let is_unknown = stake == Stake::Commit && !is_definite(&error);
        let text = chain(&error);
        let failure = Failure::from(error);
        if is_unknown || failure.class == Class::Lost {
            warn!(error = text, "the connection to Postgres is lost");
            self.give_up();
        }
        if is_unknown { Failure::last(DatabaseError::CommitUnknown) } else { failure }
    }

    fn silent(&self, stake: Stake, limit: Duration) -> Failure {
        warn!(?limit, "Postgres has fallen silent");
        self.give_up();
        match stake {
            Stake::Commit => Failure::last(DatabaseError::CommitUnknown),
            Stake::Nothing => {
                Failure::last(DatabaseError::unavailable(format!("the server has not answered within {limit:?}")))
            }
        }
    }

    async fn prepared(&self, sql: &str, params: &[Typed<'_>]) -> Result<Statement, Failure> {
        let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
        let statement = self.bounded(Stake::Nothing, self.client.prepare_typed_cached(sql, &types)).await;
        if statement.is_err() {
            // The cache keeps a place for what is being prepared, and does not count it.
            self.client.statement_cache.remove(sql, &types);
        }
        statement
    }
}

fn lost(sentence: &str) -> Failure {
    Failure { class: Class::Lost, error: DatabaseError::unavailable(sentence) }
}

// === impl Generation ===

impl Generation {
    /// Whether a connection is older than the last loss.
    pub(super) fn is_over(&self, connection: &Metrics) -> bool {
        self.lost_at().is_some_and(|lost_at| connection.created <= lost_at)
    }

    /// Ends the generation of a lost connection; a loss that was already counted is not counted twice.
    pub(super) fn end(&self, lost: &Metrics) {
        let mut lost_at = self.lost_at();
        if lost_at.is_none_or(|lost_at| lost.created > lost_at) {
            // Now, on the clock that the pool goes by.
            *lost_at = Some(lost.created + lost.age());
        }
    }

    fn lost_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
