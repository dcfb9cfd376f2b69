//! A record as a row keeps it: the texts and numbers of its columns, and the way back.
//!
//! Shared by the engines, so that a column means the same in each, and a deadline is judged in one place.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use idem_core::{
    AttemptId, Deadline, FencingToken, Fingerprint, GrantedBy, IdempotencyKey, OperationId, Put, Record, Response,
    RetentionPeriod, Scope, State, StateName, TraceContext, Until,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Entry, KeyId, LiveKeys, Snapshot, StoreError, SwapRequest, Times, Version};
use crate::sealing::{Part, Place, Sealing};

const STATES: [StateName; 4] = [StateName::InProgress, StateName::InDoubt, StateName::Completed, StateName::Released];
const GRANTED_BY: [GrantedBy; 2] = [GrantedBy::Reserve, GrantedBy::Reclaim];

/// The columns of a row that came back.
pub(super) struct Stored {
    pub(super) operation_id: Uuid,
    pub(super) fencing_token: i64,
    pub(super) fingerprint: Vec<u8>,
    pub(super) attempt_id: Uuid,
    pub(super) granted_by: String,
    pub(super) past_attempts: Vec<u8>,
    pub(super) attempts: i64,
    pub(super) retention_micros: i64,
    pub(super) trace_context: String,
    pub(super) state: String,
    pub(super) response: Option<StoredResponse>,
    pub(super) version: i64,
    pub(super) times: Times,
}

/// The columns of a stored answer that came back.
pub(super) struct StoredResponse {
    pub(super) status: i64,
    pub(super) headers: String,
    /// None when it was not read, as for a listing.
    pub(super) body: Option<Vec<u8>>,
    pub(super) resource_id: String,
}

/// The columns of an answer to be stored.
pub(super) struct ResponseColumns<'w> {
    pub(super) status: i64,
    pub(super) headers: String,
    pub(super) body: Cow<'w, [u8]>,
    pub(super) resource_id: Cow<'w, str>,
}

/// What stands in the column of headers when the answer is sealed: an object, where a plain answer has a list. A program that knows
/// nothing of it cannot take the one for the other.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SealedHead {
    /// The id of the key.
    sealed_with: String,
    /// [`Head`] in JSON, sealed, in base64.
    head: String,
}

/// What is sealed beside the body.
#[derive(Serialize, Deserialize)]
struct Head<H, R> {
    headers: H,
    resource_id: R,
}

/// A column that this program would not have written.
#[derive(Debug, thiserror::Error)]
#[error("a stored record has a {0} that this program does not understand")]
struct Foreign(&'static str);

// === impl Stored ===

impl Stored {
    /// What the row under `key` says at `now`.
    pub(super) fn into_snapshot(
        mut self,
        key: &KeyId,
        sealing: &Sealing,
        now: SystemTime,
    ) -> Result<Snapshot, StoreError> {
        let operation_id = OperationId(self.operation_id);
        let version = Version::At { operation_id, number: self.version };
        let times = self.times;
        let response = self.response.take().map(|response| response.into_response(key, operation_id, sealing));
        let record = self.into_record(response.transpose()?, now);
        let record = record.map_err(|foreign| StoreError::Broken(Box::new(foreign)))?;
        Ok(Snapshot { record: Some(record), version, times, now })
    }

    fn into_record(self, response: Option<Response>, now: SystemTime) -> Result<Record, Foreign> {
        let state = match (STATES.into_iter().find(|name| name.as_str() == self.state), response) {
            (Some(StateName::InProgress), None) => State::InProgress,
            (Some(StateName::InDoubt), None) => State::InDoubt,
            (Some(StateName::Released), None) => State::Released,
            (Some(StateName::Completed), Some(response)) => State::Completed(response),
            _ => return Err(Foreign("state")),
        };
        let granted_by = GRANTED_BY.into_iter().find(|candidate| granted_by_name(*candidate) == self.granted_by);
        Ok(Record {
            operation_id: OperationId(self.operation_id),
            token: FencingToken(self.fencing_token),
            fingerprint: Fingerprint::from_slice(&self.fingerprint).map_err(|_| Foreign("fingerprint"))?,
            attempt_id: AttemptId(self.attempt_id),
            granted_by: granted_by.ok_or(Foreign("way of being granted"))?,
            past_attempts: unpack(&self.past_attempts)?,
            attempts: u32::try_from(self.attempts).map_err(|_| Foreign("number of attempts"))?,
            retention: read_retention(self.retention_micros)?,
            trace_context: TraceContext::new(self.trace_context).map_err(|_| Foreign("trace context"))?,
            deadline: judge(&state, &self.times, now),
            state,
        })
    }
}

impl StoredResponse {
    fn into_response(self, key: &KeyId, operation_id: OperationId, sealing: &Sealing) -> Result<Response, StoreError> {
        if self.headers.starts_with('{') {
            return self.unsealed(key, operation_id, sealing);
        }
        let headers = serde_json::from_str(&self.headers).map_err(|_| broken("list of headers"))?;
        response_of(self.status, headers, self.body.unwrap_or_default(), self.resource_id)
    }

    fn unsealed(self, key: &KeyId, operation_id: OperationId, sealing: &Sealing) -> Result<Response, StoreError> {
        let sealed: SealedHead = serde_json::from_str(&self.headers).map_err(|_| broken("list of headers"))?;
        let head = STANDARD.decode(&sealed.head).map_err(|_| broken("sealed head"))?;
        let status = u16::try_from(self.status).map_err(|_| broken("status"))?;
        let place = Place { key, operation_id, status };
        let open = |part, bytes: &[u8]| {
            let opened = sealing.open(&sealed.sealed_with, place, part, bytes);
            opened.map_err(|unopened| StoreError::Broken(Box::new(unopened)))
        };
        let head = match (open(Part::Head, &head), &self.body) {
            // A listing shows what it can: one row must not hide the others.
            (Err(_), None) => Head { headers: Vec::new(), resource_id: String::new() },
            (head, _) => serde_json::from_slice(&head?).map_err(|_| broken("sealed head"))?,
        };
        let body = self.body.map(|body| open(Part::Body, &body)).transpose()?;
        response_of(self.status, head.headers, body.unwrap_or_default(), head.resource_id)
    }
}

fn response_of(
    status: i64,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    resource_id: String,
) -> Result<Response, StoreError> {
    let status = u32::try_from(status).map_err(|_| broken("status"))?;
    Response::new(status, headers, Bytes::from(body), resource_id).map_err(|_| broken("response"))
}

fn broken(what: &'static str) -> StoreError {
    StoreError::Broken(Box::new(Foreign(what)))
}

// === impl ResponseColumns ===

impl<'w> ResponseColumns<'w> {
    /// Of a write that stores an answer; sealed if there are keys.
    pub(super) fn of(write: &'w SwapRequest, sealing: &Sealing) -> Option<Self> {
        let response = response(&write.put.record)?;
        let status = response.status();
        let Some(keyring) = sealing.keyring() else {
            return Some(Self {
                status: status.into(),
                headers: headers(response),
                body: response.body().as_ref().into(),
                resource_id: response.resource_id().into(),
            });
        };
        let place = Place { key: &write.key, operation_id: write.put.record.operation_id, status };
        let head = json(&Head { headers: response.headers(), resource_id: response.resource_id() });
        let head = STANDARD.encode(keyring.seal(place, Part::Head, head.as_bytes()));
        Some(Self {
            status: status.into(),
            headers: json(&SealedHead { sealed_with: keyring.active_id().to_owned(), head }),
            body: keyring.seal(place, Part::Body, response.body()).into(),
            resource_id: "".into(),
        })
    }
}

// === snapshots ===

/// What stands under a key without a record.
pub(super) fn absent(now: SystemTime) -> Snapshot {
    let times = Times { created_at: now, updated_at: now, lease_until: None, completed_at: None, expires_at: None };
    Snapshot { record: None, version: Version::Absent, times, now }
}

/// What stands under a key once `put` is written there as its `number`th writing.
pub(super) fn written(put: &Put, number: i64, times: Times) -> Snapshot {
    let mut record = put.record.clone();
    record.retention = RetentionPeriod::stored(whole_micros(record.retention.get()));
    record.deadline = Deadline::Ahead;
    let version = Version::At { operation_id: record.operation_id, number };
    Snapshot { record: Some(record), version, times, now: times.updated_at }
}

/// The times of a generation that begins with `put` at `now`.
pub(super) fn times(put: &Put, now: SystemTime) -> Times {
    Times {
        created_at: now,
        updated_at: now,
        lease_until: lease(put).map(|lease| now + whole_micros(lease)),
        completed_at: response(&put.record).map(|_| now),
        expires_at: retention(put).map(|retention| now + whole_micros(retention)),
    }
}

/// Whether a record's deadline is reached at `now`: the lease of a held one, the retention of a finished one.
pub(super) fn judge(state: &State, times: &Times, now: SystemTime) -> Deadline {
    let until = match state {
        State::InProgress => times.lease_until,
        State::Completed(_) | State::Released => times.expires_at,
        State::InDoubt => None,
    };
    if until.is_some_and(|until| until <= now) { Deadline::Passed } else { Deadline::Ahead }
}

/// Longest waiting first: since the end of the lease, or since the last change of a record in doubt.
pub(super) fn sort_by_waiting(entries: &mut [Entry]) {
    let since = |times: &Times| times.lease_until.unwrap_or(times.updated_at);
    entries.sort_by(|a, b| (since(&a.snapshot.times), &a.key).cmp(&(since(&b.snapshot.times), &b.key)));
}

/// The key of a row.
pub(super) fn key(scope: String, key: String) -> Result<KeyId, StoreError> {
    match (Scope::new(scope), IdempotencyKey::new(key)) {
        (Ok(scope), Ok(key)) => Ok(KeyId { scope, key }),
        (Err(_), _) => Err(broken("scope")),
        (_, Err(_)) => Err(broken("key")),
    }
}

/// A count of open keys.
pub(super) fn live_keys(scope: String, keys: i64) -> Result<LiveKeys, StoreError> {
    let scope = Scope::new(scope).map_err(|_| broken("scope"))?;
    Ok(LiveKeys { scope, keys: keys.unsigned_abs() })
}

// === columns ===

/// The lease that a put begins.
pub(super) fn lease(put: &Put) -> Option<Duration> {
    match put.until {
        Until::Lease(lease) => Some(lease.get()),
        Until::Retention(_) | Until::Never => None,
    }
}

/// The retention that a put begins.
pub(super) fn retention(put: &Put) -> Option<Duration> {
    match put.until {
        Until::Retention(retention) => Some(retention.get()),
        Until::Lease(_) | Until::Never => None,
    }
}

/// Whole microseconds: the grain of time in every store.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The duration as a store keeps it.
fn whole_micros(duration: Duration) -> Duration {
    Duration::from_micros(micros(duration).unsigned_abs())
}

/// The stored answer of a record.
fn response(record: &Record) -> Option<&Response> {
    match &record.state {
        State::Completed(response) => Some(response),
        State::InProgress | State::InDoubt | State::Released => None,
    }
}

/// Headers as a JSON list of pairs: their order and their repetitions are part of the answer.
fn headers(response: &Response) -> String {
    json(response.headers())
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("strings are always JSON")
}

/// Sixteen bytes an attempt.
pub(super) fn pack(attempts: &[AttemptId]) -> Vec<u8> {
    attempts.iter().flat_map(|attempt| *attempt.0.as_bytes()).collect()
}

/// As written in SQL.
pub(super) fn granted_by_name(granted_by: GrantedBy) -> &'static str {
    match granted_by {
        GrantedBy::Reserve => "reserve",
        GrantedBy::Reclaim => "reclaim",
    }
}

fn read_retention(micros: i64) -> Result<RetentionPeriod, Foreign> {
    let micros = u64::try_from(micros).map_err(|_| Foreign("retention"))?;
    Ok(RetentionPeriod::stored(Duration::from_micros(micros)))
}

fn unpack(packed: &[u8]) -> Result<Vec<AttemptId>, Foreign> {
    let (attempts, rest) = packed.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(Foreign("list of past attempts"));
    }
    Ok(attempts.iter().map(|bytes| AttemptId(Uuid::from_bytes(*bytes))).collect())
}
