//! What stands under a key → `KeyRecord`, `Replay`: a record without its body, a response with it.

use idem_core::{Record, Response, State};
use idem_proto::idem::v1 as proto;

use super::{state, timestamp};
use crate::store::{Entry, KeyId, Snapshot};

/// The record without its body; none when the key is absent or its retention is over.
pub(crate) fn key_record(key: &KeyId, snapshot: &Snapshot) -> Option<proto::KeyRecord> {
    match &snapshot.record {
        Some(record) if !record.is_over() => Some(describe(key, record, snapshot)),
        _ => None,
    }
}

/// A listed record without its body, also one that waits for the purge.
pub(crate) fn listed(entry: &Entry) -> Option<proto::KeyRecord> {
    entry.snapshot.record.as_ref().map(|record| describe(&entry.key, record, &entry.snapshot))
}

/// The stored answer, if that is what stands there and its retention is not over.
pub(super) fn replay(snapshot: &Snapshot) -> Option<proto::Replay> {
    let record = snapshot.record.as_ref().filter(|record| !record.is_over())?;
    let State::Completed(response) = &record.state else { return None };
    Some(proto::Replay {
        response: Some(stored_response(response)),
        completed_at: timestamp(snapshot.times.completed_at),
        expires_at: timestamp(snapshot.times.expires_at),
        trace_context: record.trace_context.as_str().to_owned(),
        expires_in: snapshot.times.expires_at.and_then(|at| at.duration_since(snapshot.now).ok()?.try_into().ok()),
    })
}

fn describe(key: &KeyId, record: &Record, snapshot: &Snapshot) -> proto::KeyRecord {
    let times = &snapshot.times;
    let (status, resource_id) = match &record.state {
        State::Completed(response) => (u32::from(response.status()), response.resource_id().to_owned()),
        State::InProgress | State::InDoubt | State::Released => (0, String::new()),
    };
    proto::KeyRecord {
        scope: key.scope.as_str().to_owned(),
        key: key.key.as_str().to_owned(),
        state: state(record.state.name()).into(),
        operation_id: record.operation_id.to_string(),
        fencing_token: record.token.0,
        attempts: record.attempts,
        created_at: timestamp(Some(times.created_at)),
        lease_expires_at: timestamp(times.lease_until),
        completed_at: timestamp(times.completed_at),
        expires_at: timestamp(times.expires_at),
        status,
        resource_id,
        trace_context: record.trace_context.as_str().to_owned(),
        lease_over: record.is_lease_over(),
        updated_at: timestamp(Some(times.updated_at)),
    }
}

fn stored_response(response: &Response) -> proto::StoredResponse {
    let header = |(name, value): &(String, String)| proto::Header { name: name.clone(), value: value.clone() };
    proto::StoredResponse {
        status: response.status().into(),
        headers: response.headers().iter().map(header).collect(),
        body: response.body().clone(),
        resource_id: response.resource_id().to_owned(),
    }
}
