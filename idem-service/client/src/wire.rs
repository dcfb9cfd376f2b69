//! Messages ⇄ values of the core. What cannot be read is [`ClientError::Malformed`], never a guess.

use std::time::{Duration, SystemTime};

use idem_core::{FencingToken, Grant, OperationId, Response, StaleReason, StateName, TraceContext};
use idem_proto::idem::v1 as proto;
use prost_types::Timestamp;

use crate::{ClientError, Granted, Intent, KeyId, Renewed, Replay, Stale, Superseded, answers};

type Read<T> = Result<T, ClientError>;

// When the service says nothing, the contract's own value.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

// === asking ===

pub(crate) fn reserve_request(intent: &Intent) -> proto::ReserveRequest {
    proto::ReserveRequest {
        scope: intent.key.scope.as_str().to_owned(),
        key: intent.key.key.as_str().to_owned(),
        fingerprint: intent.fingerprint.as_bytes().to_vec().into(),
        attempt_id: intent.attempt_id.to_string(),
        lease: Some(duration(intent.lease.get())),
        retention: Some(duration(intent.retention.get())),
        wait: Some(duration(intent.wait)),
        trace_context: intent.trace_context.as_str().to_owned(),
    }
}

pub(crate) fn stored_response(response: &Response) -> proto::StoredResponse {
    let header = |(name, value): &(String, String)| proto::Header { name: name.clone(), value: value.clone() };
    proto::StoredResponse {
        status: response.status().into(),
        headers: response.headers().iter().map(header).collect(),
        body: response.body().clone(),
        resource_id: response.resource_id().to_owned(),
    }
}

pub(crate) fn names(key: &KeyId) -> (String, String) {
    (key.scope.as_str().to_owned(), key.key.as_str().to_owned())
}

pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    // Every duration that is sent was bounded to 30 days before.
    prost_types::Duration::try_from(duration).expect("a bounded duration fits")
}

// === reading ===

pub(crate) fn reserved(answer: proto::ReserveResponse) -> Read<answers::Reserved> {
    use proto::reserve_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("a Reserve without an outcome"))? {
        Outcome::Granted(it) => answers::Reserved::Granted(granted(it)?),
        Outcome::Replay(it) => answers::Reserved::Replay(replay(it)?),
        Outcome::InProgress(it) => answers::Reserved::InProgress { retry_after: retry_after(it) },
        Outcome::Mismatch(_) => answers::Reserved::Mismatch,
        Outcome::Stale(it) => answers::Reserved::Stale(stale(it)?),
    })
}

pub(crate) fn reclaimed(answer: proto::ReclaimResponse) -> Read<answers::Reclaimed> {
    use proto::reclaim_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("a Reclaim without an outcome"))? {
        Outcome::Granted(it) => answers::Reclaimed::Granted(granted(it)?),
        Outcome::Replay(it) => answers::Reclaimed::Replay(replay(it)?),
        Outcome::InProgress(it) => answers::Reclaimed::InProgress { retry_after: retry_after(it) },
    })
}

pub(crate) fn completed(answer: proto::CompleteResponse) -> Read<answers::Finished> {
    use proto::complete_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("a Complete without an outcome"))? {
        Outcome::Completed(it) => answers::Finished::Done(Some(required_time(it.expires_at)?)),
        Outcome::Superseded(it) => answers::Finished::Superseded(superseded(it)?),
    })
}

pub(crate) fn released(answer: proto::ReleaseResponse) -> Read<answers::Finished> {
    use proto::release_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("a Release without an outcome"))? {
        Outcome::Released(_) => answers::Finished::Done(None),
        Outcome::Superseded(it) => answers::Finished::Superseded(superseded(it)?),
    })
}

pub(crate) fn abandoned(answer: proto::AbandonResponse) -> Read<answers::Finished> {
    use proto::abandon_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("an Abandon without an outcome"))? {
        Outcome::Abandoned(_) => answers::Finished::Done(None),
        Outcome::Superseded(it) => answers::Finished::Superseded(superseded(it)?),
    })
}

pub(crate) fn renewed(answer: proto::RenewResponse) -> Read<Renewed> {
    use proto::renew_response::Outcome;
    Ok(match answer.outcome.ok_or(ClientError::Malformed("a Renew without an outcome"))? {
        Outcome::Renewed(it) => Renewed::Until(required_time(it.lease_expires_at)?),
        Outcome::Superseded(it) => Renewed::Superseded(superseded(it)?),
    })
}

fn granted(it: proto::Granted) -> Read<Granted> {
    let grant = Grant {
        operation_id: operation_id(&it.operation_id)?,
        token: FencingToken(it.fencing_token),
        attempts: it.attempts,
        must_ask: it.must_ask,
    };
    Ok(Granted { grant, lease_expires_at: required_time(it.lease_expires_at)? })
}

fn replay(it: proto::Replay) -> Read<Replay> {
    let response = it.response.ok_or(ClientError::Malformed("a replay without a response"))?;
    let headers = response.headers.into_iter().map(|h| (h.name, h.value)).collect();
    let response = Response::new(response.status, headers, response.body, response.resource_id)
        .map_err(|_| ClientError::Malformed("a stored response that is out of bounds"))?;
    Ok(Replay {
        response,
        completed_at: required_time(it.completed_at)?,
        expires_at: required_time(it.expires_at)?,
        expires_in: it.expires_in.and_then(read_duration).unwrap_or_default(),
        trace_context: trace_context(it.trace_context),
    })
}

fn stale(it: proto::Stale) -> Read<Stale> {
    let reason = match it.reason() {
        proto::StaleReason::InDoubt => StaleReason::InDoubt,
        proto::StaleReason::AttemptEnded => StaleReason::AttemptEnded,
        // What to do does not depend on the reason, so an unknown one is no obstacle.
        proto::StaleReason::LeaseExpired | proto::StaleReason::Unspecified => StaleReason::LeaseExpired,
    };
    Ok(Stale {
        operation_id: operation_id(&it.operation_id)?,
        token: FencingToken(it.fencing_token),
        reason,
        trace_context: trace_context(it.trace_context),
    })
}

fn superseded(it: proto::Superseded) -> Read<Superseded> {
    Ok(Superseded { state: state(it.state()), replay: it.replay.map(replay).transpose()?.map(Box::new) })
}

fn retry_after(it: proto::InProgress) -> Duration {
    it.retry_after.and_then(read_duration).unwrap_or(RETRY_AFTER_DEFAULT)
}

/// None when it is negative or malformed. (The library's own conversion panics on the least of all numbers.)
fn read_duration(it: prost_types::Duration) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(it.seconds).ok()?, u32::try_from(it.nanos).ok()?);
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

pub(crate) fn state(state: proto::State) -> Option<StateName> {
    match state {
        proto::State::Unspecified => None,
        proto::State::InProgress => Some(StateName::InProgress),
        proto::State::InDoubt => Some(StateName::InDoubt),
        proto::State::Completed => Some(StateName::Completed),
        proto::State::Released => Some(StateName::Released),
    }
}

pub(crate) fn operation_id(text: &str) -> Read<OperationId> {
    text.parse().map(OperationId).map_err(|_| ClientError::Malformed("an operation id that is no UUID"))
}

pub(crate) fn time(time: Option<Timestamp>) -> Read<Option<SystemTime>> {
    let read = |t: Timestamp| t.try_into().map_err(|_| ClientError::Malformed("a time that is out of bounds"));
    time.map(read).transpose()
}

fn required_time(it: Option<Timestamp>) -> Read<SystemTime> {
    time(it)?.ok_or(ClientError::Malformed("an answer without its time"))
}

/// A trace context is only good for links: one that cannot be read is none.
pub(crate) fn trace_context(text: String) -> TraceContext {
    TraceContext::new(text).unwrap_or_default()
}
