//! One connection: its statements are bounded in time, and those of its age share its fate when it is lost.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement};
use tracing::warn;

use super::failure::is_definite;
use super::values::{self, Typed};
use crate::error::chain;
use crate::failure::{Class, Failure};
use crate::{DatabaseError, Row, Value};

/// Distinct statements kept prepared per connection; a service has a few dozen.
const STATEMENTS: usize = 256;

/// A connection to the primary.
pub(crate) struct Session {
    client: Client,
    /// Moves the bytes; ends with the session.
    _driver: JoinSet<()>,
    statements: Mutex<HashMap<String, Prepared>>,
    settings: Settings,
    /// Something was asked and is not answered yet.
    is_in_flight: AtomicBool,
    /// Not to be used again.
    is_broken: AtomicBool,
    born: u64,
    generation: Generation,
}

/// How a session treats its statements.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Behind a pooler that gives every transaction another server: nothing may be kept on the server between them.
    pub(super) is_pooled: bool,
    /// After this the server ends a statement.
    pub(super) statement_timeout: Duration,
    /// After this the server ends a session that sits idle in a transaction.
    pub(super) idle_in_transaction_timeout: Duration,
}

/// Counts how often a connection was lost: older ones share its fate, and are replaced rather than tried one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation(Arc<AtomicU64>);

struct Prepared {
    types: Vec<Type>,
    statement: Statement,
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
    pub(super) fn new(client: Client, driver: JoinSet<()>, settings: Settings, generation: Generation) -> Self {
        Self {
            client,
            _driver: driver,
            statements: Mutex::default(),
            settings,
            is_in_flight: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            born: generation.now(),
            generation,
        }
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
        let params = values::typed(params);
        if self.settings.is_pooled {
            return self.bounded(Stake::Nothing, self.client.execute_typed(sql, &params)).await;
        }
        let statement = self.prepared(sql, &params).await?;
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

    /// Waits for everything that was asked before, and makes sure that no transaction is open.
    pub(super) async fn verify(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await?;
        self.is_in_flight.store(false, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.is_in_flight.load(Ordering::SeqCst)
    }

    /// Whether this connection may be used again, as far as one can tell without asking the server.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::SeqCst) && self.born == self.generation.now() && !self.client.is_closed()
    }

    /// Takes this connection out of use, and those that are as old with it.
    pub(super) fn give_up(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.generation.end(self.born);
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
        let is_same = |types: &[Type]| types.iter().eq(params.iter().map(|(_, of)| of));
        if let Some(known) = self.statements().get(sql).filter(|known| is_same(&known.types)) {
            return Ok(known.statement.clone());
        }
        let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
        let statement = self.bounded(Stake::Nothing, self.client.prepare_typed(sql, &types)).await?;
        let mut statements = self.statements();
        if statements.len() >= STATEMENTS {
            // Only text that changes with its values gets here; starting over is as good as any order.
            statements.clear();
        }
        statements.insert(sql.to_owned(), Prepared { types, statement: statement.clone() });
        Ok(statement)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<String, Prepared>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(sentence: &str) -> Failure {
    Failure { class: Class::Lost, error: DatabaseError::unavailable(sentence) }
}

// === impl Generation ===

impl Generation {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Ends the generation `born`; a loss that was already counted is not counted twice.
    fn end(&self, born: u64) {
        let _ = self.0.compare_exchange(born, born + 1, Ordering::SeqCst, Ordering::SeqCst);
    }
}
