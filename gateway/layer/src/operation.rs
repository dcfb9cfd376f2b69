//! One keyed request from its reservation to its answer, whatever becomes of its connection.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fault_point::fault_point;
use http::Response;
use idem_core::{AttemptId, Fingerprint, TraceContext};
use tokio::{sync::oneshot, time::Instant};
use tracing::{Span, info, warn};

use crate::{
    Problem,
    execute::{self, Execute, Executed},
    headers,
    holder::{Decided, Holder},
    layer::{Answer, Shared},
    ports::{BackendError, Found, KeyId, Label, RecoverError, ReserveCall, Reserved},
    recovery,
    tally::{Tally, Verdict},
};

/// How long a Reserve may take: what is left of two seconds goes to the answer.
pub(crate) const RESERVE_PATIENCE: Duration = Duration::from_millis(1800);
/// A client that would rather wait is served in slices, so that a store that goes away meanwhile is noticed in time.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// How long a slice may take beyond its wait.
const SLICE_PATIENCE: Duration = Duration::from_millis(900);

/// One keyed request, checked and not reserved yet.
pub(crate) struct Operation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: KeyId,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) wait: Duration,
    pub(crate) execute: Execute,
    pub(crate) tally: Tally,
    pub(crate) client: oneshot::Sender<Response<Bytes>>,
}

/// The part that decides, apart from the part that answers.
struct Attempt {
    shared: Arc<Shared>,
    key: KeyId,
    fingerprint: Fingerprint,
    attempt_id: AttemptId,
    trace_context: TraceContext,
}

impl Operation {
    /// Runs to the end. The client is answered as soon as the answer stands; saying it to the store may take longer.
    pub(crate) async fn run(self) {
        let traceparent = (self.shared.settings.hooks.traceparent)();
        let attempt = Attempt {
            shared: self.shared,
            key: self.key,
            fingerprint: self.fingerprint,
            attempt_id: AttemptId(uuid::Uuid::new_v4()),
            trace_context: TraceContext::new(traceparent).unwrap_or_default(),
        };
        let Decided { mut answer, unsaid } = attempt.decide(self.wait, self.execute, &self.client).await;
        Span::current().record("idem.outcome", answer.verdict.as_str());
        answer.response.extensions_mut().insert(self.tally.count(answer.verdict));
        // A client that is gone changes nothing. Its request has left a line in the log when it went; this one says how it ended.
        if let Err(unheard) = self.client.send(answer.response) {
            let (status, outcome) = (unheard.status().as_u16(), answer.verdict.as_str());
            info!(target: "access", client_gone = true, status, outcome, "ended after its client had gone");
        }
        if let Some((holder, closing)) = unsaid {
            holder.say_later(&closing).await;
        }
    }
}

impl Attempt {
    async fn decide(self, wait: Duration, execute: Execute, client: &oneshot::Sender<Response<Bytes>>) -> Decided {
        let shared = self.shared.clone();
        let (asked, reserved) = self.reserve(wait, client).await;
        Decided::answer(match reserved {
            Ok(Reserved::Granted(held)) => {
                let holder = Holder::new(shared, self.key, held, asked);
                record_grant(&holder);
                return if held.grant.must_ask {
                    recovery::recover(holder, execute).await
                } else {
                    carry_out(holder, execute).await
                };
            }
            Ok(Reserved::Stale { operation_id, token, trace_context }) => {
                shared.link_to(trace_context.as_str());
                return recovery::reclaim(shared, self.key, (operation_id, token), asked, execute).await;
            }
            Ok(Reserved::Replay(replay)) => shared.replay(&replay),
            Ok(Reserved::InProgress) => shared.refuse(&Problem::request_in_progress(), Verdict::InProgress),
            Ok(Reserved::Mismatch) => shared.refuse(&Problem::key_reuse(), Verdict::Mismatch),
            Err(error) => unavailable(&shared, &error),
        })
    }

    /// Reserves, and waits for a running holder as long as the client would and is there. With the answer comes when it was asked
    /// for.
    async fn reserve(
        &self,
        wait: Duration,
        client: &oneshot::Sender<Response<Bytes>>,
    ) -> (Instant, Result<Reserved, BackendError>) {
        let mut asked = Instant::now();
        let mut reserved = self.reserve_once(Duration::ZERO, asked + RESERVE_PATIENCE).await;
        let wait_end = Instant::now() + wait;
        while let Ok(Reserved::InProgress) = reserved {
            asked = Instant::now();
            let slice = wait_end.saturating_duration_since(asked).min(WAIT_SLICE);
            if slice.is_zero() || client.is_closed() {
                break;
            }
            reserved = self.reserve_once(slice, asked + slice + SLICE_PATIENCE).await;
        }
        (asked, reserved)
    }

    async fn reserve_once(&self, wait: Duration, deadline: Instant) -> Result<Reserved, BackendError> {
        let settings = &self.shared.settings;
        let call = ReserveCall {
            key: self.key.clone(),
            fingerprint: self.fingerprint,
            attempt_id: self.attempt_id,
            lease: settings.lease,
            retention: settings.retention,
            wait,
            trace_context: self.trace_context.clone(),
        };
        fault_point!("reserve: call" => Err(BackendError::at_fault_point()));
        let asked = self.shared.replays.moment();
        let reserved = self.shared.backend.reserve(call, deadline).await;
        fault_point!("reserve: answered" => Err(BackendError::at_fault_point()));
        if let Ok(Reserved::Replay(replay)) = &reserved {
            self.shared.replays.keep(&self.key, self.fingerprint, replay, asked);
        }
        reserved
    }
}

/// Executes, and does with the answer what its label says.
pub(crate) async fn carry_out(holder: Holder, execute: Execute) -> Decided {
    let Some(Executed { mut response, outcome: Some(outcome) }) = execute::run(execute, holder.permit()).await else {
        return ask_again(holder).await;
    };
    // The system of record may have met an execution of its own from before.
    let verdict = if outcome.is_replayed { Verdict::Replayed } else { Verdict::Executed };
    if outcome.is_replayed {
        headers::mark_replayed(response.headers_mut());
    }
    match outcome.label {
        Label::Final => holder.complete(response, &outcome.resource_id, verdict).await,
        Label::NoEffect => holder.release(response).await,
        Label::NotRun => holder.release_not_run(response).await,
        Label::Undecided => holder.abandon(Answer { response, verdict: Verdict::Undecided }).await,
        Label::Unknown => ask_again(holder).await,
    }
}

/// This holder's own call may or may not have been carried out: asks once, at once. It never releases the key: whatever it hears,
/// its own call may be the one that is still on its way.
async fn ask_again(holder: Holder) -> Decided {
    let shared = holder.shared.clone();
    #[cfg(feature = "sabotage")]
    if idem_core::sabotage::breaks("abandon") {
        return holder.release(shared.refuse(&Problem::in_doubt(), Verdict::InDoubt).response).await;
    }
    if holder.is_out_of_time() {
        return holder.abandon(shared.refuse(&Problem::in_doubt(), Verdict::InDoubt)).await;
    }
    let answer = match recovery::look_up(&holder).await {
        Ok(Found::Settled(response, outcome)) if outcome.label == Label::Final => {
            return holder.complete(response, &outcome.resource_id, Verdict::Recovered).await;
        }
        Ok(Found::Pending) => shared.refuse(&Problem::outcome_pending(), Verdict::OutcomePending),
        Err(RecoverError::Fenced) => shared.refuse(&Problem::request_in_progress(), Verdict::InProgress),
        Ok(Found::Settled(..) | Found::Unknown) | Err(RecoverError::Unreachable(_)) => {
            shared.refuse(&Problem::in_doubt(), Verdict::InDoubt)
        }
    };
    holder.abandon(answer).await
}

pub(crate) fn unavailable(shared: &Shared, error: &BackendError) -> Answer {
    warn!(error = error as &dyn std::error::Error, "the key could not be reserved");
    shared.refuse(&Problem::idempotency_unavailable(), Verdict::Unavailable)
}

pub(crate) fn record_grant(holder: &Holder) {
    let permit = holder.permit();
    Span::current()
        .record("idem.fencing_token", permit.token.0)
        .record("idem.operation_id", tracing::field::display(permit.operation_id))
        .record("idem.attempt", i64::from(holder.attempt));
}
