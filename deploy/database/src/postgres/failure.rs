//! What the errors of Postgres mean to a service.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::DatabaseError;
use crate::failure::{Class, Failure};

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        Failure::from(error).error
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.as_db_error().map(of_server) {
            Some(class) => class.failure(error),
            None => of_driver(&error).failure(error),
        }
    }
}

/// What kind of trouble an error is.
enum Trouble {
    Conflict,
    Taken,
    /// The connection is of no use any more.
    Lost,
    /// The server cannot do this now.
    Weather,
    Decode,
    Bug,
}

impl Trouble {
    fn failure(self, error: Error) -> Failure {
        let decode = |error: Error| DatabaseError::Decode(crate::error::chain(&error));
        match self {
            Self::Conflict => Failure { class: Class::Conflict, error: DatabaseError::Conflict },
            Self::Taken => Failure { class: Class::Taken, error: DatabaseError::Statement(Arc::new(error)) },
            Self::Lost => Failure { class: Class::Lost, error: DatabaseError::Unavailable(Arc::new(error)) },
            Self::Weather => Failure::last(DatabaseError::Unavailable(Arc::new(error))),
            Self::Decode => Failure::last(decode(error)),
            Self::Bug => Failure::last(DatabaseError::Statement(Arc::new(error))),
        }
    }
}

/// Whether the server itself says that it has not done what it was asked. Without its word, or with the last word of a
/// session that is being ended, a commit may have happened.
pub(super) fn is_definite(error: &Error) -> bool {
    match error.as_db_error() {
        Some(error) => !is_fatal(error) && !is_of_connection(error),
        None => !matches!(of_driver(error), Trouble::Lost),
    }
}

/// Whether a session of this server may still be used after the error.
fn of_server(error: &DbError) -> Trouble {
    let state = error.code();
    if *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED {
        return Trouble::Conflict;
    }
    if *state == SqlState::UNIQUE_VIOLATION {
        return Trouble::Taken;
    }
    // A demoted primary, a plan that no longer fits a migrated table, a prepared statement that a pooler has lost:
    // the next connection has none of these.
    let is_useless = *state == SqlState::READ_ONLY_SQL_TRANSACTION
        || *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || *state == SqlState::DUPLICATE_PSTATEMENT
        || (*state == SqlState::FEATURE_NOT_SUPPORTED && error.message().contains("cached plan"));
    if is_useless || is_fatal(error) || is_of_connection(error) {
        return Trouble::Lost;
    }
    // Timeouts and cancellations, lack of resources, I/O errors.
    let is_weather = *state == SqlState::QUERY_CANCELED
        || *state == SqlState::LOCK_NOT_AVAILABLE
        || ["53", "58"].iter().any(|class| state.code().starts_with(class));
    if is_weather { Trouble::Weather } else { Trouble::Bug }
}

/// The session is being ended: shutdown, crash of another backend, idle in a transaction for too long.
fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(error.code())
}

/// Class 08, which poolers use when their own connection to the server broke. The server itself has one of them for a
/// wrong number of parameters, as a plain error.
fn is_of_connection(error: &DbError) -> bool {
    let is_bug = *error.code() == SqlState::PROTOCOL_VIOLATION && error.parsed_severity() == Some(Severity::Error);
    error.code().code().starts_with("08") && !is_bug
}

fn of_driver(error: &Error) -> Trouble {
    if error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()) {
        return Trouble::Lost;
    }
    // The driver keeps its kinds to itself; these sentences are all it shows of them.
    let sentence = error.to_string();
    if sentence.starts_with("unexpected message") || sentence.starts_with("timeout waiting") {
        return Trouble::Lost;
    }
    if sentence.starts_with("error deserializing") || sentence.starts_with("invalid column") {
        return Trouble::Decode;
    }
    Trouble::Bug
}
