//! Listing and counting, for operators. Neither has an index of its own, which every write would have to pay for.

use std::time::{Duration, SystemTime};

use idem_core::{FencingToken, IdempotencyKey, OperationId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows::{self, clock, listed};
use super::{Param, PostgresStore};
use crate::store::stored;
use crate::store::{AuditRow, Counts, Cursor, Entry, Filter, Open, ScopePattern, StoreError};

/// Nothing is older than this, and a time this long ago is still one for Postgres; an age may be ten times as much.
const AGE_MAX: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);

/// The scope is like one of the patterns in `$2`.
macro_rules! in_scopes {
    () => {
        "k.scope LIKE ANY ($2)"
    };
}
pub(super) use in_scopes;

/// Since when the key is open, or finished.
macro_rules! since {
    () => {
        "(CASE WHEN k.state IN ('in_progress', 'in_doubt') THEN k.created_at ELSE k.updated_at END)"
    };
}

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
       AND ",
    since!(),
    " <= (SELECT now FROM clock) - $4 * INTERVAL '1 microsecond'
       AND ($5 IS NULL OR (",
    since!(),
    ", k.scope, k.key) > ($5, $6, $7))
       AND ($9 IS NULL OR k.operation_id = $9)
     ORDER BY ",
    since!(),
    ", k.scope, k.key
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
           MIN(k.created_at) FILTER (WHERE k.state = 'in_doubt') AS oldest_in_doubt_at
      FROM idem_keys AS k
     WHERE ",
    in_scopes!()
);

/// By the index of what is open, which is small.
const COUNT_OPEN: &str = concat!(
    "-- idem.count_open
    ",
    clock!(),
    "
    SELECT (SELECT now FROM clock) AS now,
           COUNT(*) FILTER (WHERE k.lease_until > (SELECT now FROM clock)) AS held,
           COUNT(*) FILTER (WHERE k.lease_until <= (SELECT now FROM clock)) AS lease_over,
           COUNT(*) FILTER (WHERE k.state = 'in_doubt') AS in_doubt,
           MIN(k.created_at) FILTER (WHERE k.lease_until <= (SELECT now FROM clock)) AS oldest_lease_over_at,
           MIN(k.created_at) FILTER (WHERE k.state = 'in_doubt') AS oldest_in_doubt_at
      FROM idem_keys AS k
     WHERE k.state IN ('in_progress', 'in_doubt')"
);

const AUDITS: &str = "\
-- idem.audits
SELECT k.id, k.scope, k.key, k.operation_id, k.fencing_token_before, k.fencing_token_after, k.action, k.reason, k.operator,
       k.service, k.at
  FROM idem_audit AS k
 WHERE k.scope LIKE ANY ($1)
   AND ($2 IS NULL OR k.key = $2)
   AND ($3 IS NULL OR k.id < $3)
 ORDER BY k.id DESC
 LIMIT $4";

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
                    (&after.map(|cursor| cursor.since), Type::TIMESTAMPTZ),
                    (&after.map(|cursor| cursor.key.scope.as_str()), Type::TEXT),
                    (&after.map(|cursor| cursor.key.key.as_str()), Type::TEXT),
                    (&i64::from(limit), Type::INT8),
                    (&filter.operation_id.map(|operation_id| operation_id.0), Type::UUID),
                ],
            )
            .await?;
        rows.iter().map(rows::entry).collect()
    }

    pub(super) async fn count_states_open(&self) -> Result<Open, StoreError> {
        let rows = self.read(COUNT_OPEN, &[(&self.offset() as _, Type::INT8)]).await?;
        let row = rows.first().ok_or_else(|| StoreError::Broken("a count has no row".into()))?;
        let now: SystemTime = row.try_get("now")?;
        let count = |column| row.try_get(column).map(|count: i64| count.unsigned_abs());
        let age = |column| {
            let since = row.try_get::<_, Option<SystemTime>>(column)?;
            Ok::<_, StoreError>(since.map(|since| now.duration_since(since).unwrap_or_default()))
        };
        Ok(Open {
            held: count("held")?,
            lease_over: count("lease_over")?,
            in_doubt: count("in_doubt")?,
            oldest_lease_over: age("oldest_lease_over_at")?,
            oldest_in_doubt: age("oldest_in_doubt_at")?,
        })
    }

    pub(super) async fn audit_page(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let (scopes, key, limit) = (patterns(scopes), key.map(IdempotencyKey::as_str), i64::from(limit));
        let params: [Param<'_>; 4] =
            [(&scopes, Type::TEXT_ARRAY), (&key, Type::TEXT), (&before, Type::INT8), (&limit, Type::INT8)];
        self.read(AUDITS, &params).await?.iter().map(audit).collect()
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

fn audit(row: &Row) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        id: row.try_get("id")?,
        key: stored::key(row.try_get("scope")?, row.try_get("key")?)?,
        operation_id: OperationId(row.try_get("operation_id")?),
        token_before: row.try_get::<_, Option<i64>>("fencing_token_before")?.map(FencingToken),
        token_after: FencingToken(row.try_get("fencing_token_after")?),
        action: row.try_get("action")?,
        reason: row.try_get("reason")?,
        operator: row.try_get("operator")?,
        service: row.try_get("service")?,
        at: row.try_get("at")?,
    })
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
