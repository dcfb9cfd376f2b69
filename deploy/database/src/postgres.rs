//! Postgres: a pool of connections to the primary, each of them verified, bounded in time, and never left in a
//! transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Pool, PoolError};
use tokio::time::{Instant, sleep};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use self::background::Background;
use self::connect::Hosts;
use self::lease::Lease;
use self::line::Line;
use self::refusal::{ConnectError, Refusal};
use self::session::{Generation, Stake};
use crate::error::chain;
use crate::schema::Standing;
use crate::{Clock, DatabaseError, Migrated, OpenError, Options, PostgresUrl, Schema};

pub(crate) use self::session::Session;
pub(crate) use self::transaction::Access;

mod background;
mod connect;
mod failure;
mod lease;
mod line;
mod migrate;
mod pool;
mod refusal;
mod session;
mod tls;
mod transaction;
mod values;

/// How long a start looks for a server before it says that there is none.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// How often a server that is still starting up is asked again.
const STARTING_EVERY: Duration = Duration::from_millis(200);

const ALIVE: &str = "\
-- database.ping
SHOW transaction_read_only";

/// The primary of a Postgres. Clones are cheap and share the pool.
///
/// Directly at the server statements are prepared once per connection and kept. Behind a pooler such as pgbouncer, which
/// is noticed by itself when it connects, nothing is kept on the server between transactions: each statement travels
/// whole and the timeouts travel with each `BEGIN`.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    hosts: Arc<Hosts>,
    generation: Generation,
    background: Background,
    clock: Clock,
    statement_timeout: Duration,
}

/// A connection lent by the pool, for one's own SQL in autocommit; it goes back when dropped.
///
/// Parameters name their types, so that statements work behind a pooler in transaction mode as well.
pub struct Connection {
    lease: Lease,
}

/// What the connections of a pool are at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolStatus {
    /// At work.
    pub used: usize,
    /// Open, and at rest.
    pub idle: usize,
    /// Callers that wait for one.
    pub waiting: usize,
}

// === impl Postgres ===

impl Postgres {
    pub(crate) async fn open(
        url: &PostgresUrl,
        schema: &Schema,
        clock: Clock,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let store = url.to_string();
        let name = options.application_name.as_deref().unwrap_or(schema.name);
        let hosts = Arc::new(Hosts::new(url, name, options)?);
        let line = first_line(&store, &hosts).await?;
        match migrate::standing(&store, &line.client, schema).await? {
            Standing::Current(_) => {}
            Standing::Newer(found) => schema.tell_newer(found, &store),
            Standing::Old(found) => return Err(schema.too_old(found, store)),
            Standing::Empty => {
                let migrated = migrate::migrate(&store, &line.client, schema).await?;
                tracing::info!(store, "{migrated}");
            }
        }
        let (generation, background) = (Generation::default(), Background::default());
        let pool = pool::pool(hosts.clone(), generation.clone(), background.clone(), options);
        Ok(Self { pool, hosts, generation, background, clock, statement_timeout: options.statement_timeout })
    }

    pub(crate) async fn migrate(url: &PostgresUrl, schema: &Schema) -> Result<Migrated, OpenError> {
        let store = url.to_string();
        let hosts = Hosts::new(url, schema.name, &Options::default())?;
        let line = first_line(&store, &hosts).await?;
        migrate::migrate(&store, &line.client, schema).await
    }

    /// A connection to the primary, or `Unavailable` within about a second.
    pub async fn client(&self) -> Result<Connection, DatabaseError> {
        Ok(Connection { lease: self.lease().await? })
    }

    /// What the connections are at now.
    pub fn pool_status(&self) -> PoolStatus {
        let status = self.pool.status();
        PoolStatus {
            used: status.size.saturating_sub(status.available),
            idle: status.available,
            waiting: status.waiting,
        }
    }

    /// The store's clock: own SQL adds its offset to `clock_timestamp()`.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) async fn ping(&self) -> Result<(), DatabaseError> {
        let session = self.lease().await?;
        let answer = session.bounded(Stake::Nothing, session.client().simple_query(ALIVE)).await;
        let answer = answer.map_err(|failure| failure.error)?;
        let is_read_only = answer
            .iter()
            .any(|message| matches!(message, tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("on")));
        if is_read_only {
            session.give_up();
            return Err(DatabaseError::unavailable("the server has become read-only"));
        }
        Ok(())
    }

    pub(crate) async fn lease(&self) -> Result<Lease, DatabaseError> {
        match self.pool.get().await {
            Ok(client) => {
                let session = Session::new(client, self.hosts.settings(), self.generation.clone());
                Ok(Lease::new(session, self.background.clone()))
            }
            Err(PoolError::Backend(error)) => Err(DatabaseError::Unavailable(Arc::new(error))),
            Err(PoolError::Timeout(_)) => {
                Err(DatabaseError::unavailable("no connection to Postgres became free in time"))
            }
            Err(other) => Err(DatabaseError::unavailable(other.to_string())),
        }
    }

    pub(crate) fn statement_timeout(&self) -> Duration {
        self.statement_timeout
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("pool", &self.pool.status()).finish_non_exhaustive()
    }
}

// === impl Connection ===

impl Connection {
    /// Runs a statement that changes nothing, so a lost connection is `Unavailable`.
    pub async fn read(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, DatabaseError> {
        self.lease.query_typed(Stake::Nothing, sql, params).await.map_err(|failure| failure.error)
    }

    /// Runs a statement that changes something and commits by itself, so a connection lost on the way is
    /// `CommitUnknown`. Deadlocks and serialisation failures are `Conflict`, after this one attempt.
    pub async fn write(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, DatabaseError> {
        self.lease.query_typed(Stake::Commit, sql, params).await.map_err(|failure| failure.error)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

// === helpers ===

/// The first connection, within the time that a start may take.
async fn first_line(store: &str, hosts: &Hosts) -> Result<Line, OpenError> {
    let deadline = Instant::now() + OPEN_LIMIT;
    // Each host gets its share, so that a silent one does not hide the others.
    let limit = OPEN_LIMIT / hosts.count().max(1);
    loop {
        match hosts.connect(limit).await {
            Ok(line) => return Ok(line),
            Err(error) if error.has_state(&SqlState::CANNOT_CONNECT_NOW) && Instant::now() < deadline => {
                sleep(STARTING_EVERY).await;
            }
            Err(error) => return Err(not_connected(store, &error)),
        }
    }
}

fn not_connected(store: &str, error: &ConnectError) -> OpenError {
    let (store, reason) = (store.to_owned(), error.to_string());
    if error.tries.iter().any(|(_, refusal)| matches!(refusal, Refusal::Unsafe(_))) {
        return OpenError::Unsafe { store, reason };
    }
    let has_spoken =
        |refusal: &Refusal| matches!(refusal, Refusal::Driver(error) if error.code().is_some() || is_secret(error));
    let is_full = error.has_state(&SqlState::TOO_MANY_CONNECTIONS) || error.has_state(&SqlState::CANNOT_CONNECT_NOW);
    if !is_full && error.tries.iter().any(|(_, refusal)| has_spoken(refusal)) {
        return OpenError::Refused { store, reason };
    }
    OpenError::Unreachable { store, reason }
}

/// The driver's own refusals: a password is asked for and none was given, TLS is asked for.
fn is_secret(error: &tokio_postgres::Error) -> bool {
    let sentence = chain(error);
    sentence.starts_with("invalid configuration") || sentence.starts_with("authentication error")
}
