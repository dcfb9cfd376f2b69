//! Listing and counting, for operators.

use std::time::SystemTime;

use rusqlite::{Connection, named_params};

use super::rows::{self, listed};
use crate::sealing::Sealing;
use crate::store::stored;
use crate::store::{Counts, Cursor, Entry, Filter, LIVE_SCOPES_MAX, LiveKeys, Open, ScopePattern, StoreError};

/// The scope is one of `:exact`, or starts with one of `:prefixes`; both are JSON lists.
macro_rules! in_scopes {
    () => {
        "(scope IN (SELECT value FROM json_each(:exact))
          OR EXISTS (SELECT 1 FROM json_each(:prefixes) WHERE substr(scope, 1, length(value)) = value))"
    };
}
pub(super) use in_scopes;

/// Since when the key is open, or finished.
macro_rules! since {
    () => {
        "(CASE WHEN state IN ('in_progress', 'in_doubt') THEN created_at ELSE updated_at END)"
    };
}

const LIST: &str = concat!(
    "-- idem.list
    SELECT ",
    listed!(),
    "
      FROM idem_keys
     WHERE ",
    in_scopes!(),
    "
       AND (:every_state OR state IN (SELECT value FROM json_each(:states)))
       AND (:operation_id IS NULL OR operation_id = :operation_id)
       AND ",
    since!(),
    " <= :since_until
       AND (:after_since IS NULL OR (",
    since!(),
    ", scope, key) > (:after_since, :after_scope, :after_key))
     ORDER BY ",
    since!(),
    ", scope, key
     LIMIT :limit"
);

const COUNT: &str = concat!(
    "-- idem.count
    SELECT COUNT(*) FILTER (WHERE state = 'in_progress') AS in_progress,
           COUNT(*) FILTER (WHERE state = 'in_progress' AND lease_until <= :now) AS lease_over,
           COUNT(*) FILTER (WHERE state = 'in_doubt') AS in_doubt,
           COUNT(*) FILTER (WHERE state = 'completed' AND expires_at > :now) AS completed,
           COUNT(*) FILTER (WHERE state = 'released' AND expires_at > :now) AS released,
           COUNT(*) FILTER (WHERE expires_at <= :now) AS expired,
           MIN(created_at) FILTER (WHERE state = 'in_doubt') AS oldest_in_doubt_at
      FROM idem_keys
     WHERE ",
    in_scopes!()
);

/// By the index of what is open, which is small.
const COUNT_OPEN: &str = "\
-- idem.count_open
SELECT COUNT(*) FILTER (WHERE lease_until > :now) AS held,
       COUNT(*) FILTER (WHERE lease_until <= :now) AS lease_over,
       COUNT(*) FILTER (WHERE state = 'in_doubt') AS in_doubt,
       MIN(created_at) FILTER (WHERE lease_until <= :now) AS oldest_lease_over_at,
       MIN(created_at) FILTER (WHERE state = 'in_doubt') AS oldest_in_doubt_at
  FROM idem_keys
 WHERE state IN ('in_progress', 'in_doubt')";

// The WHERE is that of the index of open keys, which is all that is read.
const COUNT_LIVE: &str = concat!(
    "-- idem.count_live
    SELECT scope, COUNT(*) AS keys
      FROM idem_keys
     WHERE state IN ('in_progress', 'in_doubt')
       AND ",
    in_scopes!(),
    "
     GROUP BY scope
     ORDER BY keys DESC, scope
     LIMIT :limit"
);

/// A page of records by how long they have been as they are, longest first.
pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
    sealing: &Sealing,
    now: SystemTime,
) -> Result<Vec<Entry>, StoreError> {
    let (exact, prefixes) = scopes(&filter.scopes);
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    let mut statement = connection.prepare_cached(LIST)?;
    let mut listed = statement.query(named_params! {
        ":exact": exact,
        ":prefixes": prefixes,
        ":every_state": states.is_empty(),
        ":states": json(&states),
        ":operation_id": filter.operation_id.map(|operation_id| operation_id.to_string()),
        ":since_until": rows::column(now).saturating_sub(stored::micros(filter.older_than)),
        ":after_since": after.map(|cursor| rows::column(cursor.since)),
        ":after_scope": after.map(|cursor| cursor.key.scope.as_str()),
        ":after_key": after.map(|cursor| cursor.key.key.as_str()),
        ":limit": limit,
    })?;
    let mut entries = Vec::new();
    while let Some(row) = listed.next()? {
        entries.push(rows::entry(row, sealing, now)?);
    }
    Ok(entries)
}

/// Records by state.
pub(super) fn count(connection: &Connection, scopes: &[ScopePattern], now: SystemTime) -> Result<Counts, StoreError> {
    let (exact, prefixes) = self::scopes(scopes);
    let params = named_params! { ":exact": exact, ":prefixes": prefixes, ":now": rows::column(now) };
    let counts = connection.prepare_cached(COUNT)?.query_row(params, |row| {
        let count = |column| row.get(column).map(|count: i64| count.unsigned_abs());
        Ok(Counts {
            in_progress: count("in_progress")?,
            lease_over: count("lease_over")?,
            in_doubt: count("in_doubt")?,
            completed: count("completed")?,
            released: count("released")?,
            expired: count("expired")?,
            oldest_in_doubt_at: row.get::<_, Option<i64>>("oldest_in_doubt_at")?.map(rows::instant),
        })
    })?;
    Ok(counts)
}

/// Of what is open.
pub(super) fn count_open(connection: &Connection, now: SystemTime) -> Result<Open, StoreError> {
    let open =
        connection.prepare_cached(COUNT_OPEN)?.query_row(named_params! { ":now": rows::column(now) }, |row| {
            let count = |column| row.get(column).map(|count: i64| count.unsigned_abs());
            let age = |column| {
                let since = row.get::<_, Option<i64>>(column)?.map(rows::instant);
                Ok::<_, rusqlite::Error>(since.map(|since| now.duration_since(since).unwrap_or_default()))
            };
            Ok(Open {
                held: count("held")?,
                lease_over: count("lease_over")?,
                in_doubt: count("in_doubt")?,
                oldest_lease_over: age("oldest_lease_over_at")?,
                oldest_in_doubt: age("oldest_in_doubt_at")?,
            })
        })?;
    Ok(open)
}

/// Open records of each scope.
pub(super) fn count_live(connection: &Connection, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
    let (exact, prefixes) = self::scopes(scopes);
    let mut statement = connection.prepare_cached(COUNT_LIVE)?;
    let mut counted =
        statement.query(named_params! { ":exact": exact, ":prefixes": prefixes, ":limit": LIVE_SCOPES_MAX })?;
    let mut live = Vec::new();
    while let Some(row) = counted.next()? {
        live.push(stored::live_keys(row.get("scope")?, row.get("keys")?)?);
    }
    Ok(live)
}

/// `:exact` and `:prefixes`.
pub(super) fn scopes(scopes: &[ScopePattern]) -> (String, String) {
    let (mut exact, mut prefixes) = (Vec::new(), Vec::new());
    for scope in scopes {
        match scope {
            ScopePattern::Exact(scope) => exact.push(scope.as_str()),
            ScopePattern::Prefix(prefix) => prefixes.push(prefix.as_str()),
        }
    }
    (json(&exact), json(&prefixes))
}

fn json(texts: &[&str]) -> String {
    serde_json::to_string(texts).expect("a list of strings is always JSON")
}
