//! What deadlines leave behind: stale records are handed out, finished ones are deleted when their retention is over.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, named_params};

use super::list::{in_scopes, scopes};
use super::rows::{self, listed};
use crate::sealing::Sealing;
use crate::store::stored;
use crate::store::{Entry, ScopePattern, StoreError};

const HAND_OUT: &str = concat!(
    "-- idem.hand_out
    UPDATE idem_keys
       SET handed_out_until = :handed_out_until
     WHERE rowid IN (
           SELECT rowid
             FROM idem_keys
            WHERE state IN ('in_progress', 'in_doubt')
              AND COALESCE(lease_until, updated_at) <= :now
              AND (handed_out_until IS NULL OR handed_out_until <= :now)
              AND ",
    in_scopes!(),
    "
            ORDER BY COALESCE(lease_until, updated_at), scope, key
            LIMIT :limit)
    RETURNING ",
    listed!()
);

const PURGE: &str = "\
-- idem.purge
DELETE FROM idem_keys
 WHERE rowid IN (
       SELECT rowid
         FROM idem_keys
        WHERE state IN ('completed', 'released')
          AND expires_at <= :now
        ORDER BY expires_at
        LIMIT :limit)";

/// Stale records, longest waiting first, hidden from the next call until `hide` has passed.
pub(super) fn hand_out_stale(
    connection: &Connection,
    patterns: &[ScopePattern],
    limit: u32,
    hide: Duration,
    now: SystemTime,
) -> Result<Vec<Entry>, StoreError> {
    let (exact, prefixes) = scopes(patterns);
    let mut statement = connection.prepare_cached(HAND_OUT)?;
    let mut handed_out = statement.query(named_params! {
        ":exact": exact,
        ":prefixes": prefixes,
        ":now": rows::column(now),
        ":handed_out_until": rows::column(now + hide),
        ":limit": limit,
    })?;
    let mut entries = Vec::new();
    while let Some(row) = handed_out.next()? {
        entries.push(rows::entry(row, &Sealing::off(), now)?);
    }
    stored::sort_by_waiting(&mut entries);
    Ok(entries)
}

/// Deletes records whose retention is over, and says how many.
pub(super) fn purge(connection: &Connection, limit: u32, now: SystemTime) -> Result<u64, StoreError> {
    let params = named_params! { ":now": rows::column(now), ":limit": limit };
    Ok(connection.prepare_cached(PURGE)?.execute(params)? as u64)
}
