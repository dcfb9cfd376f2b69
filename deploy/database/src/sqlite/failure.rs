//! What the errors of SQLite mean to a service.

use std::sync::Arc;

use rusqlite::{Error, ErrorCode, ffi};

use crate::DatabaseError;
use crate::failure::Failure;

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        match &error {
            Error::SqliteFailure(code, _) if is_weather(*code) => Self::Unavailable(Arc::new(error)),
            Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnIndex(_)
            | Error::InvalidColumnName(_)
            | Error::InvalidColumnType(..)
            | Error::QueryReturnedNoRows
            | Error::QueryReturnedMoreThanOneRow => Self::Decode(error.to_string()),
            _ => Self::Statement(Arc::new(error)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // A single writer has nobody to lose against, so no failure is worth a second attempt.
        Self::last(error.into())
    }
}

/// What a failed `COMMIT` means. Only an fsync that failed leaves it open: the pages may or may not be on the disk.
pub(super) fn of_commit(error: Error) -> DatabaseError {
    match &error {
        Error::SqliteFailure(code, _)
            if matches!(code.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) =>
        {
            DatabaseError::CommitUnknown
        }
        _ => error.into(),
    }
}

/// Disk full, I/O errors, locks held by others, no memory: nothing that a change of the program would mend.
fn is_weather(error: ffi::Error) -> bool {
    match error.code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::SystemIoFailure
        | ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::PermissionDenied => true,
        // The plain code is a write inside a read; the extended ones are a file system that has become read-only.
        ErrorCode::ReadOnly => error.extended_code != ffi::SQLITE_READONLY,
        _ => false,
    }
}
