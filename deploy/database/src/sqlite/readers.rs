//! Connections that read beside the writer, on threads that may block.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Span;

use super::file::HeldFile;
use crate::DatabaseError;

/// A small pool of reading connections. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    file: HeldFile,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

// === impl Readers ===

impl Readers {
    pub(super) fn new(file: HeldFile, size: usize) -> Self {
        Self { file, idle: Arc::default(), permits: Arc::new(Semaphore::new(size.max(1))) }
    }

    /// Runs `job` over one snapshot. When the caller goes away the job runs on and its answer is dropped.
    pub(super) async fn run<T, E>(
        &self,
        patience: Duration,
        job: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let Ok(Ok(permit)) = timeout(patience, self.permits.clone().acquire_owned()).await else {
            return Err(DatabaseError::unavailable("no SQLite reader became free in time").into());
        };
        let (readers, span) = (self.clone(), Span::current());
        let run = spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(|| readers.snapshot(job))
        });
        match run.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => Err(DatabaseError::unavailable("the process is stopping").into()),
        }
    }

    /// Runs `job` between `BEGIN` and `COMMIT`; a connection that cannot do these is closed rather than kept.
    fn snapshot<T, E: From<DatabaseError>>(&self, job: impl FnOnce(&mut Connection) -> Result<T, E>) -> Result<T, E> {
        let mut connection = self.take().map_err(DatabaseError::from)?;
        connection.execute_batch("BEGIN").map_err(DatabaseError::from)?;
        let result = job(&mut connection);
        if connection.execute_batch("COMMIT").is_ok() {
            self.idle().push(connection);
        }
        result
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let idle = self.idle().pop();
        idle.map_or_else(|| self.file.connect_reader(), Ok)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A pushed or popped connection leaves nothing half done, so a panic elsewhere does not matter.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
