//! Listing and counting, for operators. Neither has an index of its own, which every write would have to pay for.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::rows::{self, clock, listed};
use crate::store::stored;
use crate::store::{Counts, Cursor, Entry, Filter, LIVE_SCOPES_MAX, LiveKeys, ScopePattern, StoreError};

/// Nothing is older than this, and a time this long ago is still one for Postgres; an age may be ten times as much.
const AGE_MAX: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);

/// The scope is like one of the patterns in `$2`.
macro_rules! in_scopes {
    () => {
        "k.scope LIKE ANY ($2)"
    };
}
pub(super) use in_scopes;

const LIST: &str = concat!(
    "-- idem.list
    ",
    clock!(),
    "
    SELECT (SELECT now FROM clock) AS now, ",
    listed!(),
    "
      FROM idem_keys AS k
     WHERE ",
    in_scopes!(),
    "
       AND (cardinality($3) = 0 OR k.state = ANY ($3))
       AND k.updated_at <= (SELECT now FROM clock) - $4 * INTERVAL '1 microsecond'
       AND ($5 IS NULL OR (k.updated_at, k.scope, k.key) > ($5, $6, $7))
     ORDER BY k.updated_at, k.scope, k.key
     LIMIT $8"
);

const COUNT: &str = concat!(
    "-- idem.count
    ",
    clock!(),
    "
    SELECT COUNT(*) FILTER (WHERE k.state = 'in_progress') AS in_progress,
           COUNT(*) FILTER (WHERE k.state = 'in_progress' AND k.lease_until <= (SELECT now FROM clock)) AS lease_over,
           COUNT(*) FILTER (WHERE k.state = 'in_doubt') AS in_doubt,
           COUNT(*) FILTER (WHERE k.state = 'completed' AND k.expires_at > (SELECT now FROM clock)) AS completed,
           COUNT(*) FILTER (WHERE k.state = 'released' AND k.expires_at > (SELECT now FROM clock)) AS released,
           COUNT(*) FILTER (WHERE k.expires_at <= (SELECT now FROM clock)) AS expired,
           MIN(k.updated_at) FILTER (WHERE k.state = 'in_doubt') AS oldest_in_doubt_at
      FROM idem_keys AS k
     WHERE ",
    in_scopes!()
);

// The first condition is that of the index of open keys, which is all that is read.
const COUNT_LIVE: &str = "\
-- idem.count_live
SELECT k.scope, COUNT(*) AS keys
  FROM idem_keys AS k
 WHERE k.state IN ('in_progress', 'in_doubt')
   AND k.scope LIKE ANY ($1)
 GROUP BY k.scope
 ORDER BY keys DESC, k.scope
 LIMIT $2";

// === impl PostgresStore ===

impl PostgresStore {
    pub(super) async fn list_page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let patterns = patterns(&filter.scopes);
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        let rows = self
            .read(
                LIST,
                &[
                    (&self.offset(), Type::INT8),
                    (&patterns, Type::TEXT_ARRAY),
                    (&states, Type::TEXT_ARRAY),
                    (&stored::micros(filter.older_than.min(AGE_MAX)), Type::INT8),
                    (&after.map(|cursor| cursor.updated_at), Type::TIMESTAMPTZ),
                    (&after.map(|cursor| cursor.key.scope.as_str()), Type::TEXT),
                    (&after.map(|cursor| cursor.key.key.as_str()), Type::TEXT),
                    (&i64::from(limit), Type::INT8),
                ],
            )
            .await?;
        rows.iter().map(|row| rows::entry(row, &self.sealing)).collect()
    }

    pub(super) async fn count_states(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        let params = [(&self.offset() as _, Type::INT8), (&patterns(scopes) as _, Type::TEXT_ARRAY)];
        let rows = self.read(COUNT, &params).await?;
        let row = rows.first().ok_or_else(|| StoreError::Broken("a count has no row".into()))?;
        let count = |column| row.try_get(column).map(|count: i64| count.unsigned_abs());
        Ok(Counts {
            in_progress: count("in_progress")?,
            lease_over: count("lease_over")?,
            in_doubt: count("in_doubt")?,
            completed: count("completed")?,
            released: count("released")?,
            expired: count("expired")?,
            oldest_in_doubt_at: row.try_get("oldest_in_doubt_at")?,
        })
    }
}

impl PostgresStore {
    pub(super) async fn count_live_keys(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        let params = [
            (&patterns(scopes) as _, Type::TEXT_ARRAY),     // $1 scope
            (&i64::from(LIVE_SCOPES_MAX) as _, Type::INT8), // $2 limit
        ];
        let rows = self.read(COUNT_LIVE, &params).await?;
        rows.iter().map(|row| stored::live_keys(row.try_get("scope")?, row.try_get("keys")?)).collect()
    }
}

/// As `LIKE` reads them; in a scope `%` and `_` are letters like any other.
pub(super) fn patterns(scopes: &[ScopePattern]) -> Vec<String> {
    let literal = |text: &str| text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    scopes
        .iter()
        .map(|scope| match scope {
            ScopePattern::Exact(exact) => literal(exact),
            ScopePattern::Prefix(prefix) => literal(prefix) + "%",
        })
        .collect()
}
