//! A store of either kind.

use futures::future::BoxFuture;

use crate::{Clock, DatabaseError, Migrated, OpenError, Options, Postgres, Schema, Sqlite, StoreUrl, Tx};

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
    pub async fn open(_url: &StoreUrl, _schema: &Schema, _clock: Clock, _options: Options) -> Result<Self, OpenError> {
        unimplemented!()
    }

    /// Brings a store to the schema, all missing migrations or none. Idempotent, and safe when two run at once.
    pub async fn migrate(_url: &StoreUrl, _schema: &Schema) -> Result<Migrated, OpenError> {
        unimplemented!()
    }

    /// Runs `work` as one short transaction: `Ok` commits, `Err` rolls back.
    ///
    /// `work` runs again, a bounded number of times, when it lost against concurrent transactions (40001, 40P01, a
    /// unique key taken between look and insert) or when its connection turned out dead before the commit was sent; so
    /// it must do nothing but statements. A connection lost during the commit is [`DatabaseError::CommitUnknown`] and is
    /// never retried. On Postgres the isolation is READ COMMITTED: put guards in the `WHERE` and check the row count.
    ///
    /// When the caller's future is dropped the transaction is rolled back, or, once queued on SQLite, may still run
    /// and commit; it is never left open.
    pub async fn transact<T, E>(
        &self,
        _name: &'static str,
        _work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        unimplemented!()
    }

    /// Runs `work` over one consistent snapshot; statements that write are refused.
    ///
    /// SQLite reads on a connection of its own, beside the writer; Postgres reads on the primary.
    pub async fn read<T, E>(
        &self,
        _name: &'static str,
        _work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        unimplemented!()
    }

    /// Asks the store for a sign of life, for readiness.
    pub async fn ping(&self) -> Result<(), DatabaseError> {
        unimplemented!()
    }
}
