//! Rows of `idem_keys`, by key, and what their columns mean.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use crate::sealing::Sealing;
use crate::store::stored::{self, Stored, StoredResponse};
use crate::store::{Entry, KeyId, Snapshot, StoreError, Times};

/// Every column but the body of the answer, which listings never read.
macro_rules! listed {
    () => {
        "k.scope, k.key, k.operation_id, k.fencing_token, k.fingerprint, k.attempt_id, k.granted_by, k.past_attempts,
         k.attempts, k.retention_micros, k.trace_context, k.state, k.lease_until, k.completed_at, k.expires_at,
         k.created_at, k.updated_at, k.version, k.response_status, k.response_headers, k.response_resource_id"
    };
}
/// The clock, read once: `clock_timestamp()` moves on while a statement runs. `$1` is what tests have added to it.
macro_rules! clock {
    () => {
        "WITH clock AS MATERIALIZED (
         SELECT clock_timestamp() + $1 * INTERVAL '1 microsecond' AS now
    )"
    };
}
pub(super) use {clock, listed};

const LOAD: &str = concat!(
    "-- idem.load
    ",
    clock!(),
    "
    SELECT w.place, c.now, k.response_body, ",
    listed!(),
    "
      FROM unnest($2, $3) WITH ORDINALITY AS w (scope, key, place)
     CROSS JOIN clock AS c
      LEFT JOIN idem_keys AS k ON k.scope = w.scope AND k.key = w.key"
);

// === impl PostgresStore ===

impl PostgresStore {
    /// What stands under each key. A key that is asked for twice is read once.
    pub(super) async fn load_each(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        let mut places: BTreeMap<&KeyId, usize> = keys.iter().map(|key| (key, 0)).collect();
        places.values_mut().enumerate().for_each(|(place, value)| *value = place);
        let ordered: Vec<&KeyId> = places.keys().copied().collect();
        let scopes: Vec<&str> = places.keys().map(|key| key.scope.as_str()).collect();
        let names: Vec<&str> = places.keys().map(|key| key.key.as_str()).collect();
        let rows = self
            .read(
                LOAD,
                &[
                    (&self.offset(), Type::INT8), // $1 offset
                    (&scopes, Type::TEXT_ARRAY),  // $2 scope
                    (&names, Type::TEXT_ARRAY),   // $3 key
                ],
            )
            .await?;
        let mut snapshots: Vec<Option<Snapshot>> = vec![None; places.len()];
        for row in &rows {
            let place = usize::try_from(row.try_get::<_, i64>("place")? - 1).unwrap_or(usize::MAX);
            if let (Some(free), Some(key)) = (snapshots.get_mut(place), ordered.get(place)) {
                *free = Some(loaded(row, key, &self.sealing)?);
            }
        }
        let found = |key| places.get(key).and_then(|place| snapshots[*place].clone());
        let all: Option<Vec<Snapshot>> = keys.iter().map(found).collect();
        all.ok_or_else(|| StoreError::Broken("a key that was asked for is missing in the answer".into()))
    }
}

fn loaded(row: &Row, key: &KeyId, sealing: &Sealing) -> Result<Snapshot, StoreError> {
    let now = row.try_get("now")?;
    match row.try_get::<_, Option<i64>>("version")? {
        Some(_) => stored(row, row.try_get("response_body")?)?.into_snapshot(key, sealing, now),
        None => Ok(stored::absent(now)),
    }
}

/// A listed row, with the time at which it was judged.
pub(super) fn entry(row: &Row, sealing: &Sealing) -> Result<Entry, StoreError> {
    let key = stored::key(row.try_get("scope")?, row.try_get("key")?)?;
    let now: SystemTime = row.try_get("now")?;
    let snapshot = stored(row, None)?.into_snapshot(&key, sealing, now)?;
    Ok(Entry { key, snapshot })
}

/// When a row was written, and what follows from that.
pub(super) fn times(row: &Row) -> Result<Times, tokio_postgres::Error> {
    Ok(Times {
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        lease_until: row.try_get("lease_until")?,
        completed_at: row.try_get("completed_at")?,
        expires_at: row.try_get("expires_at")?,
    })
}

fn stored(row: &Row, body: Option<Vec<u8>>) -> Result<Stored, tokio_postgres::Error> {
    Ok(Stored {
        operation_id: row.try_get("operation_id")?,
        fencing_token: row.try_get("fencing_token")?,
        fingerprint: row.try_get("fingerprint")?,
        attempt_id: row.try_get("attempt_id")?,
        granted_by: row.try_get("granted_by")?,
        past_attempts: row.try_get("past_attempts")?,
        attempts: row.try_get("attempts")?,
        retention_micros: row.try_get("retention_micros")?,
        trace_context: row.try_get("trace_context")?,
        state: row.try_get("state")?,
        response: response(row, body)?,
        version: row.try_get("version")?,
        times: times(row)?,
    })
}

fn response(row: &Row, body: Option<Vec<u8>>) -> Result<Option<StoredResponse>, tokio_postgres::Error> {
    let Some(status) = row.try_get("response_status")? else { return Ok(None) };
    Ok(Some(StoredResponse {
        status,
        headers: row.try_get("response_headers")?,
        body,
        resource_id: row.try_get("response_resource_id")?,
    }))
}
