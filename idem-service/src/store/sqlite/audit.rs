//! What was settled by hand.

use idem_core::{FencingToken, IdempotencyKey, OperationId};
use rusqlite::{Connection, named_params};

use super::list::{in_scopes, scopes};
use super::rows;
use crate::store::stored;
use crate::store::{AuditRow, ScopePattern, StoreError};

const PAGE: &str = concat!(
    "-- idem.audits
    SELECT id, scope, key, operation_id, fencing_token_before, fencing_token_after, action, reason, operator, service, at
      FROM idem_audit
     WHERE ",
    in_scopes!(),
    "
       AND (:key IS NULL OR key = :key)
       AND (:before IS NULL OR id < :before)
     ORDER BY id DESC
     LIMIT :limit"
);

/// Lines of the audit table, latest first.
pub(super) fn page(
    connection: &Connection,
    scopes: &[ScopePattern],
    key: Option<&IdempotencyKey>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let (exact, prefixes) = self::scopes(scopes);
    let mut statement = connection.prepare_cached(PAGE)?;
    let mut found = statement.query(named_params! {
        ":exact": exact,
        ":prefixes": prefixes,
        ":key": key.map(IdempotencyKey::as_str),
        ":before": before,
        ":limit": limit,
    })?;
    let mut lines = Vec::new();
    while let Some(row) = found.next()? {
        lines.push(AuditRow {
            id: row.get("id")?,
            key: stored::key(row.get("scope")?, row.get("key")?)?,
            operation_id: OperationId(rows::uuid(row, "operation_id")?),
            token_before: row.get::<_, Option<i64>>("fencing_token_before")?.map(FencingToken),
            token_after: FencingToken(row.get("fencing_token_after")?),
            action: row.get("action")?,
            reason: row.get("reason")?,
            operator: row.get("operator")?,
            service: row.get("service")?,
            at: rows::instant(row.get("at")?),
        });
    }
    Ok(lines)
}
