//! Rows of `idem_keys`, by key, and what their columns mean.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use uuid::Uuid;

use crate::sealing::Sealing;
use crate::store::stored::{self, Stored, StoredResponse};
use crate::store::{Entry, KeyId, Snapshot, StoreError, Times};

/// Every column but the body of the answer, which listings never read.
macro_rules! listed {
    () => {
        "scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts,
         retention_micros, trace_context, state, lease_until, completed_at, expires_at, created_at, updated_at, version,
         response_status, response_headers, response_resource_id"
    };
}
pub(super) use listed;

const LOAD: &str = concat!(
    "-- idem.load
    SELECT ",
    listed!(),
    ", response_body
      FROM idem_keys
     WHERE scope = :scope
       AND key = :key"
);

/// What stands under `key` at `now`.
pub(super) fn load(
    connection: &Connection,
    key: &KeyId,
    sealing: &Sealing,
    now: SystemTime,
) -> Result<Snapshot, StoreError> {
    let mut statement = connection.prepare_cached(LOAD)?;
    let params = named_params! { ":scope": key.scope.as_str(), ":key": key.key.as_str() };
    let with_body = |row: &Row<'_>| stored(row, row.get("response_body")?);
    match statement.query_row(params, with_body).optional()? {
        Some(stored) => stored.into_snapshot(key, sealing, now),
        None => Ok(stored::absent(now)),
    }
}

/// A listed row at `now`.
pub(super) fn entry(row: &Row<'_>, sealing: &Sealing, now: SystemTime) -> Result<Entry, StoreError> {
    let key = stored::key(row.get("scope")?, row.get("key")?)?;
    let snapshot = stored(row, None)?.into_snapshot(&key, sealing, now)?;
    Ok(Entry { key, snapshot })
}

fn stored(row: &Row<'_>, body: Option<Vec<u8>>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        operation_id: uuid(row, "operation_id")?,
        fencing_token: row.get("fencing_token")?,
        fingerprint: row.get("fingerprint")?,
        attempt_id: uuid(row, "attempt_id")?,
        granted_by: row.get("granted_by")?,
        past_attempts: row.get("past_attempts")?,
        attempts: row.get("attempts")?,
        retention_micros: row.get("retention_micros")?,
        trace_context: row.get("trace_context")?,
        state: row.get("state")?,
        response: response(row, body)?,
        version: row.get("version")?,
        times: Times {
            created_at: instant(row.get("created_at")?),
            updated_at: instant(row.get("updated_at")?),
            lease_until: row.get::<_, Option<i64>>("lease_until")?.map(instant),
            completed_at: row.get::<_, Option<i64>>("completed_at")?.map(instant),
            expires_at: row.get::<_, Option<i64>>("expires_at")?.map(instant),
        },
    })
}

fn response(row: &Row<'_>, body: Option<Vec<u8>>) -> rusqlite::Result<Option<StoredResponse>> {
    let Some(status) = row.get("response_status")? else { return Ok(None) };
    Ok(Some(StoredResponse {
        status,
        headers: row.get("response_headers")?,
        body,
        resource_id: row.get("response_resource_id")?,
    }))
}

pub(super) fn uuid(row: &Row<'_>, column: &str) -> rusqlite::Result<Uuid> {
    let text: String = row.get(column)?;
    let place = row.as_ref().column_index(column)?;
    text.parse().map_err(|error| rusqlite::Error::FromSqlConversionFailure(place, Type::Text, Box::new(error)))
}

/// An instant of a column: microseconds since 1970.
pub(super) fn instant(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The column of an instant.
pub(super) fn column(instant: SystemTime) -> i64 {
    match instant.duration_since(UNIX_EPOCH) {
        Ok(since) => stored::micros(since),
        Err(before) => -stored::micros(before.duration()),
    }
}
