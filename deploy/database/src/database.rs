//! A store of either kind.

use fault_point::fault_point;
use futures::future::BoxFuture;
use tracing::{Instrument, Span};

use crate::failure::Failure;
use crate::postgres::Access;
use crate::{Clock, DatabaseError, Migrated, OpenError, Options, PoolStatus, Postgres, Schema, Sqlite, StoreUrl, Tx};

/// An open store of either kind. Clones are cheap and share it.
#[derive(Clone, Debug)]
pub enum Database {
    /// A SQLite file, held by this process alone.
    Sqlite(Sqlite),
    /// The primary of a Postgres.
    Postgres(Postgres),
}

// === impl Database ===

impl Database {
    /// Opens a store. An empty one gets its schema; an older one is refused with the command that migrates it; a newer
    /// one is accepted and logged, since a release must live with the schema of the next. Answers within about five
    /// seconds, also when nobody is there.
    ///
    /// # Panics
    /// When the schema's migrations are not numbered from 1 without gaps.
    pub async fn open(url: &StoreUrl, schema: &Schema, clock: Clock, options: Options) -> Result<Self, OpenError> {
        schema.assert_numbered();
        match url {
            StoreUrl::Sqlite(path) => Ok(Self::Sqlite(Sqlite::open(path, schema, clock, &options).await?)),
            StoreUrl::Postgres(config) => Ok(Self::Postgres(Postgres::open(config, schema, clock, &options).await?)),
        }
    }

    /// Brings a store to the schema, all missing migrations or none. Idempotent, and safe when two run at once. A
    /// SQLite file must not be in use.
    ///
    /// # Panics
    /// When the schema's migrations are not numbered from 1 without gaps.
    pub async fn migrate(url: &StoreUrl, schema: &Schema) -> Result<Migrated, OpenError> {
        schema.assert_numbered();
        match url {
            StoreUrl::Sqlite(path) => Sqlite::migrate(path, schema).await,
            StoreUrl::Postgres(config) => Postgres::migrate(config, schema).await,
        }
    }

    /// Runs `work` as one short transaction: `Ok` commits, `Err` rolls back.
    ///
    /// `work` runs again, a bounded number of times, when it lost against concurrent transactions (40001, 40P01, a
    /// unique key taken between look and insert) or when its connection turned out dead before the commit was sent; so
    /// it must do nothing but statements. A connection lost during the commit is [`DatabaseError::CommitUnknown`] and is
    /// never retried. On Postgres the isolation is READ COMMITTED: put guards in the `WHERE` and check the row count.
    ///
    /// When the caller's future is dropped the transaction is rolled back, or, once queued on SQLite, may still run
    /// and commit; it is never left open. So a caller with a deadline drops the future at the deadline.
    ///
    /// # Panics
    /// On SQLite when `work` waits for anything but its statements. A panic of `work` rolls back and goes on in the
    /// caller.
    pub async fn transact<T, E>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let span = self.span(name);
        fault_point!("{name}: begin" => Err(Failure::at_fault_point().error.into()));
        let done = match self {
            Self::Sqlite(sqlite) => sqlite.transact(name, work).instrument(span).await,
            Self::Postgres(postgres) => postgres.transact(name, Access::Write, work).instrument(span).await,
        }?;
        fault_point!("{name}: committed" => Err(DatabaseError::CommitUnknown.into()));
        Ok(done)
    }

    /// Runs `work` over one consistent snapshot; statements that write are refused.
    ///
    /// SQLite reads on a connection of its own, beside the writer; Postgres reads on the primary. Retries are those of
    /// [`transact`](Self::transact).
    pub async fn read<T, E>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let span = self.span(name);
        fault_point!("{name}: begin" => Err(Failure::at_fault_point().error.into()));
        match self {
            Self::Sqlite(sqlite) => sqlite.read_transaction(name, work).instrument(span).await,
            Self::Postgres(postgres) => postgres.transact(name, Access::Read, work).instrument(span).await,
        }
    }

    /// The span of a transaction, in the trace of whoever wants it. What goes on by itself, and mostly finds nothing to do, makes none.
    fn span(&self, name: &'static str) -> Span {
        if Span::current().is_none() {
            return Span::none();
        }
        let system = match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgresql",
        };
        tracing::info_span!(
            "transaction",
            otel.name = name,
            otel.kind = "client",
            db.system.name = system,
            db.operation.name = "transaction",
            db.query.summary = name,
        )
    }

    /// Asks the store for a sign of life, for readiness.
    pub async fn ping(&self) -> Result<(), DatabaseError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.ping().await,
            Self::Postgres(postgres) => postgres.ping().await,
        }
    }

    /// What the connections are at; none on SQLite, which has no pool.
    pub fn pool(&self) -> Option<PoolStatus> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(postgres) => Some(postgres.pool_status()),
        }
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        match self {
            Self::Sqlite(sqlite) => sqlite.clock(),
            Self::Postgres(postgres) => postgres.clock(),
        }
    }
}
