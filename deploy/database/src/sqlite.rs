//! SQLite: one writer thread with group commit, readers beside it, a lock that keeps other processes out.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rusqlite::Connection;
use tokio::task::spawn_blocking;

use self::file::HeldFile;
use self::readers::Readers;
use self::writer::Writer;
use crate::error::chain;
use crate::schema::Standing;
use crate::tx::Engine;
use crate::{Clock, DatabaseError, Migrated, OpenError, Options, Schema, StoreUrl, Tx};

mod failure;
mod file;
mod migrate;
mod readers;
pub(crate) mod statements;
mod writer;

/// How long a start waits for the process before it to let go of the file.
const OPEN_PATIENCE: Duration = Duration::from_secs(2);

/// How long `migrate` waits for another `migrate`.
const MIGRATE_PATIENCE: Duration = Duration::from_secs(10);

/// An open SQLite file. Clones are cheap and share it; the last one to go closes it.
#[derive(Clone, Debug)]
pub struct Sqlite {
    clock: Clock,
    patience: Duration,
    writer: Writer,
    readers: Readers,
}

// === impl Sqlite ===

impl Sqlite {
    pub(crate) async fn open(path: &Path, schema: &Schema, clock: Clock, options: &Options) -> Result<Self, OpenError> {
        let file = HeldFile::hold(path, OPEN_PATIENCE).await?;
        let (held, schema) = (file.clone(), *schema);
        let connection = blocking(move || connect(&held, &schema)).await?;
        let writer = Writer::start(connection, file.clone()).map_err(|error| file.refused(chain(&error)))?;
        Ok(Self { clock, patience: options.pool_wait, writer, readers: Readers::new(file, options.readers) })
    }

    pub(crate) async fn migrate(path: &Path, schema: &Schema) -> Result<Migrated, OpenError> {
        let file = HeldFile::hold(path, MIGRATE_PATIENCE).await?;
        let schema = *schema;
        blocking(move || migrate::migrate(&file, &schema)).await
    }

    /// Runs `job` on the writer, inside a savepoint of its own: `Ok` keeps its changes, `Err` undoes them. Whatever
    /// waits at the same time shares one commit, and everybody is answered after it; a failed commit fails all.
    ///
    /// When the caller's future is dropped, a queued job may still run and commit.
    pub async fn write<T, E>(&self, job: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.writer.run(self.patience, |connection| job(connection)).await
    }

    /// Runs `job` over one consistent snapshot on a connection that cannot write.
    pub async fn read<T, E>(&self, job: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.readers.run(self.patience, |connection| job(connection)).await
    }

    /// The store's now, in microseconds since 1970: the wall clock plus the offset of the [`Clock`].
    pub fn now(&self) -> i64 {
        self.clock.over_wall()
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) async fn transact<T, E>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let clock = self.clock.clone();
        self.writer.run(self.patience, move |connection| complete(name, &clock, connection, work)).await
    }

    pub(crate) async fn read_transaction<T, E>(
        &self,
        name: &'static str,
        work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let clock = self.clock.clone();
        self.readers.run(self.patience, move |connection| complete(name, &clock, connection, work)).await
    }

    pub(crate) async fn ping(&self) -> Result<(), DatabaseError> {
        self.read(|connection| {
            connection.query_row("SELECT COUNT(*) FROM schema_migrations", [], |row| row.get::<_, i64>(0))?;
            Ok(())
        })
        .await
    }
}

/// Polls the work once, which is all it takes: its statements never wait.
fn complete<T, E: From<DatabaseError>>(
    name: &'static str,
    clock: &Clock,
    connection: &mut Connection,
    work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>>,
) -> Result<T, E> {
    let mut tx = Tx::new(name, clock.over_wall(), Engine::Sqlite(Mutex::new(connection)));
    let result = work(&mut tx).now_or_never().unwrap_or_else(|| {
        panic!("the transaction `{name}` waits for something other than its statements, which no transaction may")
    });
    match tx.end(result.is_ok()) {
        Some(failure) => Err(result.err().unwrap_or_else(|| failure.error.into())),
        None => result,
    }
}

/// The writer's connection to a file with the right schema.
fn connect(file: &HeldFile, schema: &Schema) -> Result<Connection, OpenError> {
    let connection = file.connect().map_err(|error| file.refused(chain(&error)))?;
    file.use_wal(&connection)?;
    let store = || StoreUrl::Sqlite(file.path().to_owned()).to_string();
    match migrate::standing(file, &connection, schema)? {
        Standing::Current(_) => {}
        Standing::Newer(found) => schema.tell_newer(found, &store()),
        Standing::Old(found) => return Err(schema.too_old(found, store())),
        Standing::Empty => {
            let migrated = migrate::migrate(file, schema)?;
            tracing::info!(store = store(), "{migrated}");
        }
    }
    Ok(connection)
}

async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    match spawn_blocking(job).await {
        Ok(result) => result,
        // The runtime never cancels a blocking job that has started, so this is the job's own panic.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
