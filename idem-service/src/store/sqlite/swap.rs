//! The compare-and-swap: a guarded write, and the truth for whoever lost.

use std::time::SystemTime;

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, named_params};

use super::rows;
use crate::sealing::Sealing;
use crate::store::stored::{self, ResponseColumns, written};
use crate::store::{Audit, KeyId, StoreError, Swap, SwapRequest, Times, Version};

const INSERT: &str = "\
-- idem.swap.insert
INSERT INTO idem_keys (
       scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts,
       retention_micros, trace_context, state, lease_until, completed_at, expires_at, created_at, updated_at, version,
       response_status, response_headers, response_resource_id, response_body)
VALUES (
       :scope, :key, :operation_id, :fencing_token, :fingerprint, :attempt_id, :granted_by, :past_attempts, :attempts,
       :retention_micros, :trace_context, :state, :lease_until, :completed_at, :expires_at, :now, :now, 1,
       :response_status, :response_headers, :response_resource_id, :response_body)
    ON CONFLICT (scope, key) DO NOTHING
RETURNING version, created_at";

const UPDATE: &str = "\
-- idem.swap.update
UPDATE idem_keys
   SET operation_id = :operation_id,
       fencing_token = :fencing_token,
       fingerprint = :fingerprint,
       attempt_id = :attempt_id,
       granted_by = :granted_by,
       past_attempts = :past_attempts,
       attempts = :attempts,
       retention_micros = :retention_micros,
       trace_context = :trace_context,
       state = :state,
       lease_until = :lease_until,
       completed_at = :completed_at,
       expires_at = :expires_at,
       created_at = CASE WHEN :is_new THEN :now ELSE created_at END,
       updated_at = :now,
       version = version + 1,
       handed_out_until = CASE WHEN :is_new THEN NULL ELSE handed_out_until END,
       response_status = :response_status,
       response_headers = :response_headers,
       response_resource_id = :response_resource_id,
       response_body = :response_body
 WHERE scope = :scope
   AND key = :key
   AND version = :seen_version
   AND operation_id = :seen_operation_id
   AND (expires_at IS NOT NULL AND expires_at <= :now) = :is_new
RETURNING version, created_at";

const TOKEN: &str = "\
-- idem.swap.token
SELECT fencing_token
  FROM idem_keys
 WHERE scope = :scope
   AND key = :key";

const AUDIT: &str = "\
-- idem.swap.audit
INSERT INTO idem_audit (
       scope, key, operation_id, fencing_token_before, fencing_token_after, action, reason, operator, service, at)
VALUES (
       :scope, :key, :operation_id, :fencing_token_before, :fencing_token_after, :action, :reason, :operator, :service,
       :at)";

/// Carries out one write at `now`.
pub(super) fn swap(
    connection: &Connection,
    write: &SwapRequest,
    sealing: &Sealing,
    now: SystemTime,
) -> Result<Swap, StoreError> {
    let token_before = match write.audit {
        Some(_) => token(connection, &write.key)?,
        None => None,
    };
    let times = stored::times(&write.put, now);
    let Some((number, created_at)) = put(connection, write, sealing, &times)? else {
        return Ok(Swap::Lost(rows::load(connection, &write.key, sealing, now)?));
    };
    if let Some(audit) = &write.audit {
        record(connection, write, audit, token_before, now)?;
    }
    Ok(Swap::Won(written(&write.put, number, Times { created_at: rows::instant(created_at), ..times })))
}

/// The number and the beginning of the record that was written; none when the guard held it back.
fn put(
    connection: &Connection,
    write: &SwapRequest,
    sealing: &Sealing,
    times: &Times,
) -> Result<Option<(i64, i64)>, StoreError> {
    let (mut statement, seen) = match write.seen {
        Version::Absent if !write.put.is_new => return Ok(None),
        Version::Absent => (connection.prepare_cached(INSERT)?, None),
        Version::At { operation_id, number } => (connection.prepare_cached(UPDATE)?, Some((operation_id, number))),
    };
    bind(&mut statement, write, ResponseColumns::of(write, sealing), times)?;
    if let Some((operation_id, number)) = seen {
        bind_one(&mut statement, ":seen_operation_id", operation_id.to_string())?;
        bind_one(&mut statement, ":seen_version", number)?;
        bind_one(&mut statement, ":is_new", write.put.is_new)?;
    }
    let mut rows = statement.raw_query();
    let won = match rows.next()? {
        Some(row) => Some((row.get("version")?, row.get("created_at")?)),
        None => None,
    };
    Ok(won)
}

fn bind(
    statement: &mut CachedStatement<'_>,
    write: &SwapRequest,
    response: Option<ResponseColumns<'_>>,
    times: &Times,
) -> rusqlite::Result<()> {
    let (record, response) = (&write.put.record, response.as_ref());
    bind_one(statement, ":scope", write.key.scope.as_str())?;
    bind_one(statement, ":key", write.key.key.as_str())?;
    bind_one(statement, ":operation_id", record.operation_id.to_string())?;
    bind_one(statement, ":fencing_token", record.token.0)?;
    bind_one(statement, ":fingerprint", record.fingerprint.as_bytes())?;
    bind_one(statement, ":attempt_id", record.attempt_id.to_string())?;
    bind_one(statement, ":granted_by", stored::granted_by_name(record.granted_by))?;
    bind_one(statement, ":past_attempts", stored::pack(&record.past_attempts))?;
    bind_one(statement, ":attempts", record.attempts)?;
    bind_one(statement, ":retention_micros", stored::micros(record.retention.get()))?;
    bind_one(statement, ":trace_context", record.trace_context.as_str())?;
    bind_one(statement, ":state", record.state.name().as_str())?;
    bind_one(statement, ":lease_until", times.lease_until.map(rows::column))?;
    bind_one(statement, ":completed_at", times.completed_at.map(rows::column))?;
    bind_one(statement, ":expires_at", times.expires_at.map(rows::column))?;
    bind_one(statement, ":now", rows::column(times.updated_at))?;
    bind_one(statement, ":response_status", response.map(|response| response.status))?;
    bind_one(statement, ":response_headers", response.map(|response| response.headers.as_str()))?;
    bind_one(statement, ":response_resource_id", response.map(|response| response.resource_id.as_ref()))?;
    bind_one(statement, ":response_body", response.map(|response| response.body.as_ref()))
}

fn bind_one(statement: &mut CachedStatement<'_>, name: &str, value: impl ToSql) -> rusqlite::Result<()> {
    let place = statement.parameter_index(name)?.ok_or_else(|| rusqlite::Error::InvalidParameterName(name.into()))?;
    statement.raw_bind_parameter(place, value)
}

fn token(connection: &Connection, key: &KeyId) -> rusqlite::Result<Option<i64>> {
    let params = named_params! { ":scope": key.scope.as_str(), ":key": key.key.as_str() };
    connection.prepare_cached(TOKEN)?.query_row(params, |row| row.get(0)).optional()
}

fn record(
    connection: &Connection,
    write: &SwapRequest,
    audit: &Audit,
    token_before: Option<i64>,
    now: SystemTime,
) -> rusqlite::Result<()> {
    connection.prepare_cached(AUDIT)?.execute(named_params! {
        ":scope": write.key.scope.as_str(),
        ":key": write.key.key.as_str(),
        ":operation_id": write.put.record.operation_id.to_string(),
        ":fencing_token_before": token_before,
        ":fencing_token_after": write.put.record.token.0,
        ":action": audit.action,
        ":reason": audit.reason,
        ":operator": audit.operator,
        ":service": audit.service,
        ":at": rows::column(now),
    })?;
    Ok(())
}
