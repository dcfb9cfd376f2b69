//! Outcomes of the engine → answers of the idempotency service.

use std::time::Duration;

use idem_core::{Answer, FencingToken, Grant, OperationId, StaleReason, StateName};
use idem_proto::idem::v1 as proto;
use proto::{
    abandon_response, complete_response, reclaim_response, release_response, renew_response, reserve_response,
};

use super::record::replay;
use super::{state, timestamp};
use crate::engine::{EngineError, Outcome};
use crate::observe::name_of;
use crate::status::Refusal;
use crate::store::{Snapshot, StoreError};

/// When to ask again after `in_progress`: operations take about as long, and waiting is what `wait` is for.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) fn reserve(outcome: &Outcome) -> Result<proto::ReserveResponse, Refusal> {
    use reserve_response::Outcome as O;
    let snapshot = &outcome.snapshot;
    let outcome = match &outcome.answer {
        Answer::Granted(grant) => O::Granted(granted(grant, snapshot)),
        Answer::Replay(_) => O::Replay(replay(snapshot).unwrap_or_default()),
        Answer::InProgress => O::InProgress(in_progress(snapshot)),
        Answer::Mismatch => O::Mismatch(proto::Mismatch {}),
        Answer::Stale(operation_id, token, reason) => O::Stale(stale(*operation_id, *token, *reason, snapshot)),
        foreign => return Err(misfit("Reserve", foreign)),
    };
    Ok(proto::ReserveResponse { outcome: Some(outcome) })
}

pub(crate) fn reclaim(outcome: &Outcome) -> Result<proto::ReclaimResponse, Refusal> {
    use reclaim_response::Outcome as O;
    let snapshot = &outcome.snapshot;
    let outcome = match &outcome.answer {
        Answer::Granted(grant) => O::Granted(granted(grant, snapshot)),
        Answer::Replay(_) => O::Replay(replay(snapshot).unwrap_or_default()),
        Answer::InProgress => O::InProgress(in_progress(snapshot)),
        Answer::Absent => return Err(Refusal::NoRecord),
        foreign => return Err(misfit("Reclaim", foreign)),
    };
    Ok(proto::ReclaimResponse { outcome: Some(outcome) })
}

pub(crate) fn complete(outcome: &Outcome) -> Result<proto::CompleteResponse, Refusal> {
    use complete_response::Outcome as O;
    let outcome = match outcome.answer {
        Answer::Completed => {
            O::Completed(proto::Completed { expires_at: timestamp(outcome.snapshot.times.expires_at) })
        }
        Answer::Superseded(now) => O::Superseded(superseded(now)),
        Answer::SupersededBy(_) => O::Superseded(superseded_by(&outcome.snapshot)),
        ref foreign => return Err(misfit("Complete", foreign)),
    };
    Ok(proto::CompleteResponse { outcome: Some(outcome) })
}

pub(crate) fn release(outcome: &Outcome) -> Result<proto::ReleaseResponse, Refusal> {
    use release_response::Outcome as O;
    let outcome = match outcome.answer {
        Answer::Released => O::Released(proto::Released {}),
        Answer::Superseded(now) => O::Superseded(superseded(now)),
        Answer::SupersededBy(_) => O::Superseded(superseded_by(&outcome.snapshot)),
        ref foreign => return Err(misfit("Release", foreign)),
    };
    Ok(proto::ReleaseResponse { outcome: Some(outcome) })
}

pub(crate) fn abandon(outcome: &Outcome) -> Result<proto::AbandonResponse, Refusal> {
    use abandon_response::Outcome as O;
    let outcome = match outcome.answer {
        Answer::Abandoned => O::Abandoned(proto::Abandoned {}),
        Answer::Superseded(now) => O::Superseded(superseded(now)),
        Answer::SupersededBy(_) => O::Superseded(superseded_by(&outcome.snapshot)),
        ref foreign => return Err(misfit("Abandon", foreign)),
    };
    Ok(proto::AbandonResponse { outcome: Some(outcome) })
}

pub(crate) fn renew(outcome: &Outcome) -> Result<proto::RenewResponse, Refusal> {
    use renew_response::Outcome as O;
    let outcome = match outcome.answer {
        Answer::Renewed => {
            O::Renewed(proto::Renewed { lease_expires_at: timestamp(outcome.snapshot.times.lease_until) })
        }
        Answer::Superseded(now) => O::Superseded(superseded(now)),
        Answer::SupersededBy(_) => O::Superseded(superseded_by(&outcome.snapshot)),
        ref foreign => return Err(misfit("Renew", foreign)),
    };
    Ok(proto::RenewResponse { outcome: Some(outcome) })
}

/// An outcome that `decide` has for other commands only; its tests go through every state and command.
pub(crate) fn misfit(command: &'static str, answer: &Answer) -> Refusal {
    let sentence = format!("{command} came to an outcome of another command: {}", name_of(answer));
    EngineError::from(StoreError::Broken(sentence.into())).into()
}

// === pieces of answers ===

fn granted(grant: &Grant, snapshot: &Snapshot) -> proto::Granted {
    debug_assert!(snapshot.times.lease_until.is_some(), "a granted key has a lease");
    proto::Granted {
        operation_id: grant.operation_id.to_string(),
        fencing_token: grant.token.0,
        lease_expires_at: timestamp(snapshot.times.lease_until),
        attempts: grant.attempts,
        must_ask: grant.must_ask,
    }
}

fn in_progress(snapshot: &Snapshot) -> proto::InProgress {
    let retry_after = prost_types::Duration::try_from(ASK_AGAIN).expect("a second fits");
    proto::InProgress { retry_after: Some(retry_after), lease_expires_at: timestamp(snapshot.times.lease_until) }
}

fn stale(operation_id: OperationId, token: FencingToken, reason: StaleReason, snapshot: &Snapshot) -> proto::Stale {
    let reason = match reason {
        StaleReason::LeaseExpired => proto::StaleReason::LeaseExpired,
        StaleReason::InDoubt => proto::StaleReason::InDoubt,
        StaleReason::AttemptEnded => proto::StaleReason::AttemptEnded,
    };
    let trace_context = snapshot.record.as_ref().map(|record| record.trace_context.as_str().to_owned());
    proto::Stale {
        operation_id: operation_id.to_string(),
        fencing_token: token.0,
        reason: reason.into(),
        trace_context: trace_context.unwrap_or_default(),
    }
}

fn superseded(now: Option<StateName>) -> proto::Superseded {
    proto::Superseded { state: now.map_or(proto::State::Unspecified, state).into(), replay: None }
}

fn superseded_by(snapshot: &Snapshot) -> proto::Superseded {
    proto::Superseded { state: proto::State::Completed.into(), replay: replay(snapshot) }
}
