//! Fence, then ask, then act: what becomes of an attempt that did not finish.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fault_point::fault_point;
use futures::FutureExt;
use idem_core::{AttemptId, FencingToken, OperationId};
use tokio::time::{Instant, timeout_at};
use tracing::{error, warn};

use crate::{
    Problem,
    execute::Execute,
    headers,
    holder::{Decided, Holder},
    layer::Shared,
    operation::{RESERVE_PATIENCE, carry_out, record_grant, unavailable},
    ports::{BackendError, Found, KeyId, Label, Reclaimed, RecoverError},
    tally::Verdict,
};

/// What Reclaim gets at least when Reserve has used up the time of both.
const RECLAIM_PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Raises the fence over the former holder, seen as `(operation_id, token)`. One request wins; it asks, then acts. `asked` is when
/// the client's two seconds began.
pub(crate) async fn reclaim(
    shared: Arc<Shared>,
    key: KeyId,
    seen: (OperationId, FencingToken),
    asked: Instant,
    execute: Execute,
) -> Decided {
    let asked_again = Instant::now();
    let deadline = (asked + RESERVE_PATIENCE).max(asked_again + RECLAIM_PATIENCE_MIN);
    // A new attempt: the one that met the stale key was granted nothing.
    let attempt_id = AttemptId(uuid::Uuid::new_v4());
    Decided::answer(match raise(&shared, &key, seen, attempt_id, deadline).await {
        Ok(Reclaimed::Granted(held)) => {
            let holder = Holder::new(shared, key, held, asked_again);
            record_grant(&holder);
            return recover(holder, execute).await;
        }
        Ok(Reclaimed::Replay(replay)) => shared.replay(&replay),
        Ok(Reclaimed::InProgress) => shared.refuse(&Problem::request_in_progress(), Verdict::InProgress),
        Err(error) => unavailable(&shared, &error),
    })
}

async fn raise(
    shared: &Shared,
    key: &KeyId,
    seen: (OperationId, FencingToken),
    attempt_id: AttemptId,
    deadline: Instant,
) -> Result<Reclaimed, BackendError> {
    fault_point!("reclaim: call" => Err(BackendError::at_fault_point()));
    let reclaimed = shared.backend.reclaim(key, seen, attempt_id, shared.settings.lease, deadline).await;
    fault_point!("reclaim: answered" => Err(BackendError::at_fault_point()));
    reclaimed
}

/// Asks what the former holder did, and acts on it. Nothing executes before the answer is in.
pub(crate) async fn recover(holder: Holder, execute: Execute) -> Decided {
    let shared = holder.shared.clone();
    let answer = match look_up(&holder).await {
        Ok(Found::Settled(mut response, outcome)) => {
            headers::mark_replayed(response.headers_mut());
            match outcome.label {
                Label::Final => return holder.complete(response, &outcome.resource_id, Verdict::Recovered).await,
                Label::NoEffect => return holder.release(response).await,
                // Settled and not decided is a contradiction; the side of caution is that it is open.
                Label::NotRun | Label::Unknown | Label::Undecided => {
                    error!("a settled operation without a decision");
                    shared.refuse(&Problem::outcome_pending(), Verdict::OutcomePending)
                }
            }
        }
        Ok(Found::Pending) => shared.refuse(&Problem::outcome_pending(), Verdict::OutcomePending),
        // The fence is up and nobody knows of the operation: it is ours, with what is left of the time.
        Ok(Found::Unknown) if !holder.is_out_of_time() => return carry_out(holder, execute).await,
        Ok(Found::Unknown) | Err(RecoverError::Unreachable(_)) => shared.refuse(&Problem::in_doubt(), Verdict::InDoubt),
        Err(RecoverError::Fenced) => shared.refuse(&Problem::request_in_progress(), Verdict::InProgress),
    };
    holder.abandon(answer).await
}

/// Asks the system of record within the holder's deadline. A question that fails, panics or takes too long is one that could not be
/// asked.
pub(crate) async fn look_up(holder: &Holder) -> Result<Found, RecoverError> {
    let permit = holder.permit();
    fault_point!("look up: call" => Err(RecoverError::Unreachable("it is lost at a fault point".into())));
    let lookup = holder.shared.recover.lookup(permit.operation_id, permit.token, permit.deadline);
    let found = match timeout_at(permit.deadline, AssertUnwindSafe(lookup).catch_unwind()).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => Err(RecoverError::Unreachable("the look-up panicked".into())),
        Err(elapsed) => Err(RecoverError::Unreachable(elapsed.into())),
    };
    if let Err(error) = &found {
        warn!(error = error as &dyn std::error::Error, "the system of record could not say what happened");
    }
    fault_point!("look up: answered" => Err(RecoverError::Unreachable("it is lost at a fault point".into())));
    found
}
