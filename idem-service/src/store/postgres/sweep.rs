//! What deadlines leave behind: stale records are handed out, finished ones are deleted when their retention is over.
//!
//! Rows that somebody is just writing are left for the next time rather than waited for, and the outer statement judges again what
//! the inner one has found: after a wait for a lock a subquery is not judged anew, and a fresh reservation would be taken for the
//! finished record in whose place it stands. It says so in words that match no partial index: the rows are found by their key.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::list::{in_scopes, patterns};
use super::rows::{self, clock, listed};
use crate::store::stored;
use crate::store::{Entry, ScopePattern, StoreError};

const HAND_OUT: &str = concat!(
    "-- idem.hand_out
    ",
    clock!(),
    ",
    stale AS (
         SELECT k.scope, k.key
           FROM idem_keys AS k
          WHERE k.state IN ('in_progress', 'in_doubt')
            AND COALESCE(k.lease_until, k.updated_at) <= (SELECT now FROM clock)
            AND (k.handed_out_until IS NULL OR k.handed_out_until <= (SELECT now FROM clock))
            AND ",
    in_scopes!(),
    "
          ORDER BY COALESCE(k.lease_until, k.updated_at), k.scope, k.key
          LIMIT $3
            FOR NO KEY UPDATE OF k SKIP LOCKED
    )
    UPDATE idem_keys AS k
       SET handed_out_until = c.now + $4 * INTERVAL '1 microsecond'
      FROM stale AS s
     CROSS JOIN clock AS c
     WHERE k.scope = s.scope
       AND k.key = s.key
       AND k.state NOT IN ('completed', 'released')
       AND COALESCE(k.lease_until, k.updated_at) <= c.now
       AND (k.handed_out_until IS NULL OR k.handed_out_until <= c.now)
    RETURNING c.now, ",
    listed!()
);

const PURGE: &str = concat!(
    "-- idem.purge
    ",
    clock!(),
    ",
    over AS (
         SELECT k.scope, k.key
           FROM idem_keys AS k
          WHERE k.state IN ('completed', 'released')
            AND k.expires_at <= (SELECT now FROM clock)
          ORDER BY k.expires_at
          LIMIT $2
            FOR UPDATE OF k SKIP LOCKED
    ),
    purged AS (
         DELETE FROM idem_keys AS k
          USING over AS o, clock AS c
          WHERE k.scope = o.scope
            AND k.key = o.key
            AND k.state NOT IN ('in_progress', 'in_doubt')
            AND k.expires_at <= c.now
         RETURNING k.key
    )
    SELECT COUNT(*) AS purged
      FROM purged"
);

// === impl PostgresStore ===

impl PostgresStore {
    pub(super) async fn hand_out(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        let handed_out = self
            .write(
                HAND_OUT,
                &[
                    (&self.offset(), Type::INT8),
                    (&patterns(scopes), Type::TEXT_ARRAY),
                    (&i64::from(limit), Type::INT8),
                    (&stored::micros(hide), Type::INT8),
                ],
            )
            .await?;
        let mut entries: Vec<Entry> =
            handed_out.rows.iter().map(|row| rows::entry(row, &self.sealing)).collect::<Result<_, _>>()?;
        stored::sort_by_waiting(&mut entries);
        Ok(entries)
    }

    pub(super) async fn purge_over(&self, limit: u32) -> Result<u64, StoreError> {
        let params = [(&self.offset() as _, Type::INT8), (&i64::from(limit) as _, Type::INT8)];
        let purged = self.write(PURGE, &params).await?;
        let row = purged.rows.first().ok_or_else(|| StoreError::Broken("a count has no row".into()))?;
        Ok(row.try_get::<_, i64>("purged")?.unsigned_abs())
    }
}
