//! Settles keys whose client never comes back.
//!
//! The idempotency service hands out keys whose lease is over or whose outcome is in doubt, each to one gateway at a time. The
//! fence is raised, the orders service is asked, and the key is completed with the kept answer, released when nothing is known
//! anywhere, or put back in doubt. Nothing is ever executed: there is no request to execute.

use crate::recovery::{Closing, Recovery, Waiting};
use bytes::Bytes;
use chassis::{
    shutdown::Shutdown,
    tasks::{self, Tasks},
};
use futures::FutureExt as _;
use http::header;
use idem_client::{ClientError, Finished, IdemClient, KeyRecord, Reclaimed};
use idem_core::{AttemptId, FencingToken, LeaseDuration, OperationId, Response};
use idem_layer::ports::{Found, Label, Outcome, RecoverError};
use std::{error::Error, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tracing::{Instrument as _, Span, field::Empty, info_span};
use uuid::Uuid;

/// The scopes of this service's keys.
const SCOPES: &str = "rest/*";

/// How many keys are settled side by side: enough for a backlog after an outage, few enough for everything behind them.
const SIDE_BY_SIDE: usize = 32;

/// The longest pause between two looks. With the jitter and what a look takes it stays well within the ten seconds that a key
/// may wait beyond its lease.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Short leases are for tests and do not make the pauses shorter than this.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// How long one call to the idempotency service may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks for unfinished keys and settles them.
#[derive(Clone)]
pub(crate) struct Reconciler {
    pub(crate) idem: IdemClient,
    pub(crate) recovery: Recovery,
    pub(crate) lease: LeaseDuration,
    pub(crate) upstream_timeout: Duration,
}

/// What became of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The kept answer is stored.
    Completed,
    /// Nothing happened.
    Released,
    /// Somebody downstream has not decided: back in doubt.
    Pending,
    /// Somebody could not be asked: back in doubt.
    Unreachable,
    /// Somebody else was faster.
    Superseded,
    /// The idempotency service could not be reached: the recovery lease will be over.
    Left,
}

/// The right to settle one key.
struct Held<'r> {
    reconciler: &'r Reconciler,
    record: &'r KeyRecord,
    grant: (OperationId, FencingToken),
    /// Questions are over by then, inside the recovery lease.
    deadline: Instant,
}

// === impl Reconciler ===

impl Reconciler {
    /// Looks until the drain begins; keys that are being settled then are still settled, in `tasks`.
    pub(crate) async fn run(self, tasks: Tasks, shutdown: Shutdown) {
        let slots = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut pause = self.pause_first();
        loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => return,
                () = tokio::time::sleep(jittered(pause)) => {}
            }
            pause = match tasks::round("look for unfinished keys", self.look(&tasks, &slots)).await {
                // There may be more than were asked for.
                Some(Ok(Looked { found, asked })) if found == asked => Duration::ZERO,
                Some(Ok(Looked { found: 1.., .. })) => self.pause_first(),
                Some(Ok(_)) | None => longer(pause),
                Some(Err(error)) => {
                    tracing::warn!(error = &error as &dyn Error, "unfinished keys could not be listed");
                    metrics::counter!("gateway_reconciler_failures_total").increment(1);
                    longer(pause)
                }
            };
        }
    }

    fn pause_first(&self) -> Duration {
        (self.lease.get() / 4).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// Takes as many keys as can be settled now, and begins to.
    async fn look(&self, tasks: &Tasks, slots: &Arc<Semaphore>) -> Result<Looked, ClientError> {
        let first = slots.clone().acquire_owned().await.expect("nobody closes the semaphore");
        let mut free = vec![first];
        free.extend(std::iter::from_fn(|| slots.clone().try_acquire_owned().ok()));
        let asked = u32::try_from(free.len()).unwrap_or(u32::MAX);
        let records = self.idem.list_stale(SCOPES, asked, self.lease, Instant::now() + PATIENCE).await?;
        let looked = Looked { found: records.len(), asked: free.len() };
        for (record, slot) in records.into_iter().zip(free) {
            drop(tasks.spawn("settle key", self.clone().settle(record, slot)));
        }
        Ok(looked)
    }

    async fn settle(self, record: KeyRecord, _slot: OwnedSemaphorePermit) {
        let key_hash = idem_core::key_hash(&record.key.scope, &record.key.key);
        let span = info_span!(
            parent: None,
            "settle key",
            idem.scope = %record.key.scope,
            idem.key_hash = key_hash,
            idem.operation_id = %record.operation_id,
            idem.attempt = i64::from(record.attempts),
            idem.fencing_token = Empty,
            idem.outcome = Empty,
        );
        async {
            chassis::trace::link_to(record.trace_context.as_str());
            let verdict = self.reclaim(&record).await.unwrap_or_else(|error| {
                tracing::warn!(
                    idem.operation_id = %record.operation_id,
                    idem.key_hash = key_hash,
                    error = &error as &dyn Error,
                    "an unfinished key is left to the next look"
                );
                Verdict::Left
            });
            Span::current().record("idem.outcome", verdict.as_str());
            tracing::info!(
                idem.scope = %record.key.scope,
                idem.key_hash = key_hash,
                idem.operation_id = %record.operation_id,
                idem.attempt = i64::from(record.attempts),
                outcome = verdict.as_str(),
                "unfinished key"
            );
            metrics::counter!("gateway_reconciled_total", "outcome" => verdict.as_str()).increment(1);
        }
        .instrument(span)
        .await;
    }

    /// Raises the fence over the former holder, then asks, then acts.
    async fn reclaim(&self, record: &KeyRecord) -> Result<Verdict, ClientError> {
        let asked = Instant::now();
        let (seen, attempt_id) = ((record.operation_id, record.token), AttemptId(Uuid::new_v4()));
        let reclaimed = self.idem.reclaim(&record.key, seen, attempt_id, self.lease, asked + PATIENCE).await?;
        let Reclaimed::Granted(granted) = reclaimed else { return Ok(Verdict::Superseded) };
        let grant = (granted.grant.operation_id, granted.grant.token);
        Span::current().record("idem.fencing_token", grant.1.0);
        let deadline = asked + self.upstream_timeout.min(self.lease.get());
        Held { reconciler: self, record, grant, deadline }.settle().await
    }
}

// === impl Held ===

impl Held<'_> {
    async fn settle(&self) -> Result<Verdict, ClientError> {
        // A panic on the way is a question that could not be asked; the key must not stay held for it.
        match AssertUnwindSafe(self.ask()).catch_unwind().await {
            Ok(Ok(Closing::Closed)) => self.release().await,
            Ok(Ok(Closing::Found(Found::Settled(response, outcome)))) => match outcome.label {
                Label::Final => self.complete(&response, &outcome).await,
                Label::NoEffect => self.release().await,
                Label::NotRun | Label::Unknown | Label::Undecided => self.abandon(Verdict::Pending).await,
            },
            Ok(Ok(Closing::Found(Found::Pending | Found::Unknown))) => self.abandon(Verdict::Pending).await,
            Ok(Err(RecoverError::Fenced)) => self.abandon(Verdict::Superseded).await,
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn Error, "what happened to an unfinished key could not be asked");
                self.abandon(Verdict::Unreachable).await
            }
            Err(_) => self.abandon(Verdict::Unreachable).await,
        }
    }

    /// What happened? What is known nowhere is given up first, which may find that it is known after all.
    async fn ask(&self) -> Result<Closing, RecoverError> {
        let recovery = &self.reconciler.recovery;
        match recovery.find(self.grant, Waiting::Nobody, self.deadline).await? {
            Found::Unknown => recovery.close(self.grant, self.deadline).await,
            found => Ok(Closing::Found(found)),
        }
    }

    async fn complete(&self, response: &http::Response<Bytes>, outcome: &Outcome) -> Result<Verdict, ClientError> {
        let idem = &self.reconciler.idem;
        let stored = stored(response, outcome);
        let finished = idem.complete(&self.record.key, self.grant, &stored, self.last_moment()).await?;
        Ok(verdict(&finished, Verdict::Completed))
    }

    async fn release(&self) -> Result<Verdict, ClientError> {
        let idem = &self.reconciler.idem;
        let finished = idem.release(&self.record.key, self.grant, self.last_moment()).await?;
        Ok(verdict(&finished, Verdict::Released))
    }

    async fn abandon(&self, because: Verdict) -> Result<Verdict, ClientError> {
        let idem = &self.reconciler.idem;
        let finished = idem.abandon(&self.record.key, self.grant, self.last_moment()).await?;
        Ok(verdict(&finished, because))
    }

    fn last_moment(&self) -> Instant {
        Instant::now() + PATIENCE
    }
}

/// How many keys a look has found, of how many it could have taken.
struct Looked {
    found: usize,
    asked: usize,
}

fn verdict(finished: &Finished, done: Verdict) -> Verdict {
    match finished {
        Finished::Done(_) => done,
        Finished::Superseded(_) => Verdict::Superseded,
    }
}

/// The answer as it is stored when its own request completes it: what it was, and where.
fn stored(response: &http::Response<Bytes>, outcome: &Outcome) -> Response {
    let kept = [header::CONTENT_TYPE, header::LOCATION, header::LINK].into_iter().filter_map(|name| {
        let value = response.headers().get(&name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    let (status, body) = (response.status().as_u16().into(), response.body().clone());
    Response::new(status, kept.collect(), body, outcome.resource_id.clone())
        .expect("a rendered result has a status, three short headers, a UUID and less than 1 MiB")
}

/// Looking for nothing costs the store a query: the longer there is nothing, the rarer the looks.
fn longer(pause: Duration) -> Duration {
    (pause.max(PAUSE_MIN) * 2).min(PAUSE_MAX)
}

/// Between 80 and 120 %, so that gateways that were started together do not look together.
fn jittered(pause: Duration) -> Duration {
    let random = u32::from(Uuid::new_v4().as_bytes()[0]);
    pause.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
}

// === impl Verdict ===

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Pending => "pending",
            Self::Unreachable => "unreachable",
            Self::Superseded => "superseded",
            Self::Left => "left",
        }
    }
}
