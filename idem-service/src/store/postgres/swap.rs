//! The compare-and-swap of many: one statement, one commit, and the truth for those that lost.

use std::collections::BTreeMap;

use ahash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use idem_core::{Deadline, Record};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::rows::{clock, times};
use super::want::Want;
use super::{Attempts, PostgresStore, Written};
use crate::store::stored::{self, written};
use crate::store::{KeyId, Snapshot, StoreError, Swap, SwapRequest, Version};

/// Rounds for a write that found nothing to lose against: its key vanished between the write and the look. Each takes another
/// purge, or another write of the same batch, at just that moment.
const ROUNDS: u32 = 5;

// Two batches must never wait for each other. Inserts run before updates, and each in the order of the keys, so whoever waits
// waits for somebody further on: inserts only for inserts and updates, updates only for updates. That is why `seen` locks its rows
// in order first; an UPDATE alone takes them in whatever order the planner likes.
//
// Both carry the whole guard: nothing there, or there at the version that was seen and its retention over exactly when a new
// generation begins. What was changed while the statement waited for the row is judged anew, as READ COMMITTED has it.
//
// The patience of a write is judged once its row is locked (a filter on `seen` runs behind its locks), by the server's own clock from
// the arrival of the statement: a row that somebody held for longer than the caller waits is left alone.
const SWAP: &str = concat!(
    "-- idem.swap
    ",
    clock!(),
    ",
    want AS MATERIALIZED (
         SELECT *
           FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
                       $24, $25, $26, $27)
                WITH ORDINALITY AS w (
                scope, key, seen_operation_id, seen_version, is_new, operation_id, fencing_token, fingerprint, attempt_id,
                granted_by, past_attempts, attempts, retention_micros, trace_context, state, lease_micros, kept_micros,
                response_status, response_headers, response_resource_id, response_body, audit_action, audit_reason,
                audit_operator, audit_service, patience_micros, place)
    ),
    inserted AS (
         INSERT INTO idem_keys (
                scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts,
                retention_micros, trace_context, state, lease_until, completed_at, expires_at, created_at, updated_at, version,
                response_status, response_headers, response_resource_id, response_body)
         SELECT w.scope, w.key, w.operation_id, w.fencing_token, w.fingerprint, w.attempt_id, w.granted_by, w.past_attempts,
                w.attempts, w.retention_micros, w.trace_context, w.state,
                c.now + w.lease_micros * INTERVAL '1 microsecond',
                CASE WHEN w.state = 'completed' THEN c.now END,
                c.now + w.kept_micros * INTERVAL '1 microsecond',
                c.now, c.now, 1,
                w.response_status, w.response_headers, w.response_resource_id, w.response_body
           FROM want AS w
          CROSS JOIN clock AS c
          WHERE w.seen_version IS NULL
            AND w.is_new
            AND COALESCE(clock_timestamp() < statement_timestamp() + w.patience_micros * INTERVAL '1 microsecond', TRUE)
          ORDER BY w.place
             ON CONFLICT (scope, key) DO NOTHING
         RETURNING scope, key, operation_id, fencing_token, version, created_at, updated_at, lease_until, completed_at,
                   expires_at
    ),
    seen AS (
         SELECT w.*, k.fencing_token AS token_before
           FROM want AS w
          CROSS JOIN clock AS c
           JOIN idem_keys AS k ON k.scope = w.scope AND k.key = w.key
          WHERE k.version = w.seen_version
            AND k.operation_id = w.seen_operation_id
            AND COALESCE(k.expires_at <= c.now, FALSE) = w.is_new
          ORDER BY w.place
            FOR NO KEY UPDATE OF k
    ),
    updated AS (
         UPDATE idem_keys AS k
            SET operation_id = w.operation_id,
                fencing_token = w.fencing_token,
                fingerprint = w.fingerprint,
                attempt_id = w.attempt_id,
                granted_by = w.granted_by,
                past_attempts = w.past_attempts,
                attempts = w.attempts,
                retention_micros = w.retention_micros,
                trace_context = w.trace_context,
                state = w.state,
                lease_until = c.now + w.lease_micros * INTERVAL '1 microsecond',
                completed_at = CASE WHEN w.state = 'completed' THEN c.now END,
                expires_at = c.now + w.kept_micros * INTERVAL '1 microsecond',
                created_at = CASE WHEN w.is_new THEN c.now ELSE k.created_at END,
                updated_at = c.now,
                version = k.version + 1,
                handed_out_until = CASE WHEN w.is_new THEN NULL ELSE k.handed_out_until END,
                response_status = w.response_status,
                response_headers = w.response_headers,
                response_resource_id = w.response_resource_id,
                response_body = w.response_body
           FROM seen AS w
          CROSS JOIN clock AS c
          WHERE k.scope = w.scope
            AND k.key = w.key
            AND k.version = w.seen_version
            AND k.operation_id = w.seen_operation_id
            AND COALESCE(k.expires_at <= c.now, FALSE) = w.is_new
            AND COALESCE(clock_timestamp() < statement_timestamp() + w.patience_micros * INTERVAL '1 microsecond', TRUE)
         RETURNING k.scope, k.key, w.token_before, k.operation_id, k.fencing_token, k.version, k.created_at, k.updated_at,
                   k.lease_until, k.completed_at, k.expires_at
    ),
    won AS (
         SELECT scope, key, NULL::BIGINT AS token_before, operation_id, fencing_token, version, created_at, updated_at,
                lease_until, completed_at, expires_at
           FROM inserted
          UNION ALL
         SELECT scope, key, token_before, operation_id, fencing_token, version, created_at, updated_at, lease_until,
                completed_at, expires_at
           FROM updated
    ),
    audited AS (
         INSERT INTO idem_audit (
                scope, key, operation_id, fencing_token_before, fencing_token_after, action, reason, operator, service, at)
         SELECT v.scope, v.key, v.operation_id, v.token_before, v.fencing_token, w.audit_action, w.audit_reason,
                w.audit_operator, w.audit_service, v.updated_at
           FROM (SELECT * FROM want WHERE audit_action IS NOT NULL OFFSET 0) AS w
           JOIN won AS v ON w.scope = v.scope AND w.key = v.key
    )
    SELECT scope, key, version, created_at, updated_at, lease_until, completed_at, expires_at
      FROM won"
);

/// A round of the same batch.
struct Round<'w> {
    /// What stands under the keys now.
    truths: HashMap<&'w KeyId, Snapshot>,
    /// Which writes won.
    won: HashSet<usize>,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// Carries out each write, as if one after another.
    pub(super) async fn swap_each(&self, writes: &[SwapRequest]) -> Result<Vec<Swap>, StoreError> {
        let mut answers: Vec<Option<Swap>> = vec![None; writes.len()];
        let mut open: Vec<usize> = (0..writes.len()).collect();
        let mut is_unsure = false;
        for round in 1.. {
            let Round { truths, won } = self.swap_round(writes, &open, &mut is_unsure).await?;
            for place in std::mem::take(&mut open) {
                let write = &writes[place];
                let truth = truths.get(&write.key).ok_or_else(|| StoreError::Broken("a key is missing".into()))?;
                if won.contains(&place) || (is_unsure && is_own(write, truth)) {
                    answers[place] = Some(Swap::Won(truth.clone()));
                } else if would_win(write, truth) && round < ROUNDS && !is_given_up(write) {
                    open.push(place);
                } else {
                    answers[place] = Some(Swap::Lost(truth.clone()));
                }
            }
            if open.is_empty() {
                break;
            }
        }
        answers.into_iter().collect::<Option<_>>().ok_or_else(|| StoreError::Broken("a write got no answer".into()))
    }

    /// Carries out the first open write of every key, and reads the truth for those that lost.
    async fn swap_round<'w>(
        &self,
        writes: &'w [SwapRequest],
        open: &[usize],
        is_unsure: &mut bool,
    ) -> Result<Round<'w>, StoreError> {
        let mut firsts: BTreeMap<&KeyId, usize> = BTreeMap::new();
        for place in open {
            firsts.entry(&writes[*place].key).or_insert(*place);
        }
        let want = Want::of(firsts.values().map(|place| &writes[*place]), &self.sealing);
        let answer = self.send(&want).await?;
        *is_unsure |= answer.is_unsure;
        let (mut truths, mut won) = (HashMap::new(), HashSet::new());
        for row in &answer.rows {
            let key = stored::key(row.try_get("scope")?, row.try_get("key")?)?;
            if let Some((key, place)) = firsts.remove_entry(&key) {
                truths.insert(key, written_at(&writes[place], row)?);
                won.insert(place);
            }
        }
        let lost: Vec<KeyId> = firsts.keys().map(|key| (*key).clone()).collect();
        if !lost.is_empty() {
            // A statement of its own: only a new snapshot shows what the other one has met.
            let loaded = self.load_each(&lost).await?;
            truths.extend(firsts.into_keys().zip(loaded));
        }
        Ok(Round { truths, won })
    }

    /// Sends the statement, each time with the patience that is left.
    async fn send(&self, want: &Want<'_>) -> Result<Written, StoreError> {
        let (offset, mut attempts) = (self.offset(), Attempts::default());
        loop {
            let connection = self.postgres.client().await?;
            let patience = want.patience();
            if let Some(written) = attempts.judge(connection.write(SWAP, &want.params(&offset, &patience)).await)? {
                return Ok(written);
            }
        }
    }
}

/// Nobody waits for this write any more.
fn is_given_up(write: &SwapRequest) -> bool {
    write.until.is_some_and(|until| Instant::now() >= until)
}

fn written_at(write: &SwapRequest, row: &Row) -> Result<Snapshot, StoreError> {
    Ok(written(&write.put, row.try_get("version")?, times(row)?))
}

/// The write has not lost against this truth, and deserves another round.
fn would_win(write: &SwapRequest, truth: &Snapshot) -> bool {
    truth.version == write.seen && truth.record.as_ref().is_none_or(Record::is_over) == write.put.is_new
}

/// The truth is what this write would have left: its commit was made, and only the answer lost. Whoever else could have written
/// the very same record after the same version would have had the same right to it.
fn is_own(write: &SwapRequest, truth: &Snapshot) -> bool {
    let number = match write.seen {
        Version::Absent => 1,
        Version::At { number, .. } => number + 1,
    };
    let own = written(&write.put, number, truth.times);
    let unjudged =
        |snapshot: &Snapshot| snapshot.record.clone().map(|record| Record { deadline: Deadline::Ahead, ..record });
    truth.version == own.version && unjudged(truth) == unjudged(&own)
}
