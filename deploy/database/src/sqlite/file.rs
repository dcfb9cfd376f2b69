//! The database file: made private, locked against other processes, opened with durable settings.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::OpenError;
use crate::error::chain;

/// How long a statement waits for a lock of some other tool, such as a backup or the `sqlite3` shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a lock held by another process is tried again.
const LOCK_EVERY: Duration = Duration::from_millis(20);

/// Distinct statements kept prepared per connection; a service has a few dozen.
const STATEMENTS: usize = 256;

/// A database file that this process holds alone for as long as a clone of this value lives.
#[derive(Clone, Debug)]
pub(crate) struct HeldFile {
    path: PathBuf,
    /// The operating system lets go of the lock when the process ends, however it ends.
    _lock: Arc<File>,
}

// === impl HeldFile ===

impl HeldFile {
    /// Takes the lock beside the file, waiting at most `patience` for another process, then makes the file if it is
    /// absent.
    pub(crate) async fn hold(path: &Path, patience: Duration) -> Result<Self, OpenError> {
        make_directory(path)?;
        let path = real_path(path)?;
        let lock = lock_file(&path)?;
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(LOCK_EVERY).await;
                }
                Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path }),
                Err(TryLockError::Error(error)) => {
                    return Err(refused(&path, "its lock file cannot be locked", &error));
                }
            }
        }
        // Only now, and only an absent file: closing any descriptor of a database file would drop the locks that SQLite
        // holds on it elsewhere in this process.
        if !path.exists() {
            private().create_new(true).open(&path).map_err(|error| refused(&path, "it cannot be created", &error))?;
        }
        Ok(Self { path, _lock: Arc::new(lock) })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection that writes, durable at every commit.
    pub(crate) fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let connection = self.open()?;
        // FULL, not NORMAL: NORMAL may lose the last commits when the power goes, and a lost commit is a promise broken.
        // fullfsync is for macOS, whose fsync leaves data in the drive.
        connection.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON;
             PRAGMA journal_size_limit = 67108864;
             PRAGMA foreign_keys = ON;",
        )?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(crate) fn connect_reader(&self) -> Result<Connection, rusqlite::Error> {
        let connection = self.open()?;
        connection.execute_batch("PRAGMA query_only = ON;")?;
        Ok(connection)
    }

    fn open(&self) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;")?;
        Ok(connection)
    }

    /// Switches the file to write-ahead logging, so that readers and the writer do not wait for each other.
    pub(crate) fn use_wal(&self, connection: &Connection) -> Result<(), OpenError> {
        let mode: Result<String, _> = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match mode {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => Ok(()),
            Ok(mode) => Err(self
                .refused(format!("its file system does not support write-ahead logging (journal mode stays {mode})"))),
            Err(error) => Err(self.refused(chain(&error))),
        }
    }

    pub(crate) fn refused(&self, reason: String) -> OpenError {
        OpenError::File { path: self.path.clone(), reason }
    }
}

/// The path without links, so that a link to the same file meets the same lock.
fn real_path(path: &Path) -> Result<PathBuf, OpenError> {
    let unresolved = |error: io::Error| refused(path, "its path cannot be resolved", &error);
    if path.exists() {
        return path.canonicalize().map_err(unresolved);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| unresolved(io::ErrorKind::InvalidInput.into()))?;
    Ok(directory.canonicalize().map_err(unresolved)?.join(name))
}

fn lock_file(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let opened = private().create(true).truncate(false).open(name);
    opened.map_err(|error| refused(path, "its lock file cannot be created", &error))
}

fn make_directory(path: &Path) -> Result<(), OpenError> {
    let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) else {
        return Ok(());
    };
    // Only one level: more than that is rather a typing slip than a wish.
    let made = make_private_directory(directory);
    made.map_err(|error| refused(path, &format!("its directory {} cannot be created", directory.display()), &error))
}

#[cfg(unix)]
fn make_private_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make_private_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)
}

/// Makes files for their owner only; SQLite gives its log the same permissions.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn refused(path: &Path, what: &str, error: &io::Error) -> OpenError {
    OpenError::File { path: path.to_owned(), reason: format!("{what}: {error}") }
}
