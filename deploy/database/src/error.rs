//! What can go wrong: while opening a store, and while using one.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_postgres::error::SqlState;

/// The cause of an error, shared by everyone whose work rode on the same commit.
pub type Cause = Arc<dyn Error + Send + Sync + 'static>;

/// Why a store could not be opened or migrated: one sentence for the operator, before anything is served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody answers, or nobody who may be written to.
    #[error("the database {store} cannot be reached: {reason}")]
    Unreachable {
        /// The store without its password.
        store: String,
        /// What was tried and what came back.
        reason: String,
    },
    /// The server answered and refused: wrong password, no such database.
    #[error("the database {store} refuses this program: {reason}")]
    Refused {
        /// The store without its password.
        store: String,
        /// What the server said.
        reason: String,
    },
    /// A setting under which an acknowledged commit may be lost.
    #[error("the database {store} is not safe to use: {reason}")]
    Unsafe {
        /// The store without its password.
        store: String,
        /// The setting, and what to set it to.
        reason: String,
    },
    /// The files with which TLS is spoken to Postgres cannot be used.
    #[error("the database {store} cannot be asked over TLS: {reason}")]
    Tls {
        /// The store without its password.
        store: String,
        /// Which file, and what is wrong with it.
        reason: String,
    },
    /// Another process holds the SQLite file.
    #[error("the database {} is in use by another process: stop it first, or give this one its own file", path.display())]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The SQLite file cannot be created, opened or read.
    #[error("the database {} cannot be opened: {reason}", path.display())]
    File {
        /// The database file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was made by an older release.
    #[error(
        "the database {store} has the schema of {schema} at {found} and this program needs {needed}: \
         run `{schema} migrate --store {store}` first"
    )]
    SchemaOld {
        /// The store without its password.
        store: String,
        /// The schema's name.
        schema: &'static str,
        /// The number the store is at.
        found: u32,
        /// The number this program needs.
        needed: u32,
    },
    /// A migration failed; nothing of this run was applied.
    #[error("migration {number} ({name}) of {schema} failed on {store}, nothing was changed: {reason}")]
    Migration {
        /// The store without its password.
        store: String,
        /// The schema's name.
        schema: &'static str,
        /// The migration's number.
        number: u32,
        /// The migration's name.
        name: &'static str,
        /// What the engine said.
        reason: String,
    },
}

/// Why a transaction or a statement did not do its work.
///
/// [`is_transient`](Self::is_transient) tells the weather from the bugs: what is transient is answered as
/// `UNAVAILABLE` and may be tried again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The store cannot be reached or cannot serve now (down, overloaded, disk full, out of time). Nothing was
    /// committed.
    #[error("the database is not available")]
    Unavailable(#[source] Cause),
    /// The connection was lost during the commit: the work is either done as a whole or not at all, and only a look
    /// can tell. Never retried silently.
    #[error("the connection was lost during the commit, its outcome is unknown")]
    CommitUnknown,
    /// Other transactions were in the way, at every one of a bounded number of attempts. Nothing was committed.
    #[error("the transaction lost against concurrent ones too often")]
    Conflict,
    /// The engine refused a statement: a bug, or a constraint that caught one. Nothing was committed.
    #[error("the database refused a statement")]
    Statement(#[source] Cause),
    /// A column was missing or of another type: a bug.
    #[error("the answer was not understood: {0}")]
    Decode(String),
}

/// A cause that is a sentence of ours.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Sentence(pub(crate) String);

// === impl DatabaseError ===

impl DatabaseError {
    /// Whether trying again later can help; the rest are bugs.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::CommitUnknown | Self::Conflict => true,
            Self::Statement(_) | Self::Decode(_) => false,
        }
    }

    /// Postgres says that a unique key is taken: somebody else was faster, and another look shows by whom.
    pub fn is_taken(&self) -> bool {
        let Self::Statement(cause) = self else { return false };
        let error = cause.downcast_ref::<tokio_postgres::Error>();
        error.and_then(tokio_postgres::Error::code) == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// Not available, for a reason of our own.
    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::Unavailable(Arc::new(Sentence(sentence.into())))
    }

    /// A bug of the caller, in a sentence.
    pub(crate) fn statement(sentence: impl Into<String>) -> Self {
        Self::Statement(Arc::new(Sentence(sentence.into())))
    }
}

/// An error and its causes on one line, as operators read it.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_says = cause.to_string();
        // Drivers often repeat the inner sentence in the outer one.
        if !line.contains(&cause_says) {
            line.push_str(": ");
            line.push_str(&cause_says);
        }
        next = cause.source();
    }
    line.replace('\n', ", ")
}
