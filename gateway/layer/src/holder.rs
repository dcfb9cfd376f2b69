//! Finishing a key that is held: complete, release or abandon it, and what the client is told when that fails.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fault_point::fault_point;
use http::Response;
use idem_core::{FencingToken, Grant, OperationId, Response as Stored};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::{
    Problem, capture, headers,
    layer::{Answer, Shared},
    ports::{BackendError, Finished, Held, KeyId, Permit, Replay},
    tally::Verdict,
};

/// How long a client waits for its answer to be stored before it gets it unstored, or for a release.
const CLOSING_PATIENCE: Duration = Duration::from_millis(1500);
/// How long one call takes at most when no client waits.
const LATE_CALL_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The holder of a key, in this process.
pub(crate) struct Holder {
    pub(crate) shared: Arc<Shared>,
    key: KeyId,
    operation_id: OperationId,
    token: FencingToken,
    /// How often the key was granted.
    pub(crate) attempt: u32,
    /// There was a holder before this one, and nobody can say that it did nothing.
    is_heir: bool,
    /// Look-up and execution are over by then.
    pub(crate) deadline: Instant,
    lease_end: Instant,
}

/// What a holder says last.
pub(crate) enum Closing {
    /// This is the answer.
    Complete(Stored),
    /// Nothing happened.
    Release,
    /// Unknown.
    Abandon,
}

/// An operation at its end: the answer, and what could not be said to the store yet.
pub(crate) struct Decided {
    pub(crate) answer: Answer,
    pub(crate) unsaid: Option<(Holder, Closing)>,
}

impl Decided {
    pub(crate) fn answer(answer: Answer) -> Self {
        Self { answer, unsaid: None }
    }
}

impl Holder {
    /// A grant that was asked for at `asked`, the earliest moment at which its lease can have begun.
    pub(crate) fn new(shared: Arc<Shared>, key: KeyId, held: Held, asked: Instant) -> Self {
        let lease_end = asked + shared.settings.lease.get();
        let deadline = (Instant::now() + shared.settings.upstream_timeout).min(lease_end);
        let Grant { operation_id, token, must_ask, attempts: attempt } = held.grant;
        Self { shared, key, operation_id, token, attempt, is_heir: must_ask, deadline, lease_end }
    }

    pub(crate) fn permit(&self) -> Permit {
        Permit { operation_id: self.operation_id, token: self.token, deadline: self.deadline }
    }

    pub(crate) fn is_out_of_time(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Stores the answer before it is given. When the store cannot be reached it is given all the same, and storing goes on.
    pub(crate) async fn complete(self, mut response: Response<Bytes>, resource_id: &str, verdict: Verdict) -> Decided {
        let stored = capture::stored(&response, resource_id, |problem| self.shared.document(problem));
        let closing = Closing::Complete(stored);
        match self.close(&closing).await {
            Ok(Finished::Done(expires_at)) => {
                if let Some(expires_at) = expires_at {
                    headers::mark_expires(response.headers_mut(), expires_at);
                }
                Decided::answer(Answer { response, verdict })
            }
            Ok(Finished::Superseded(_, replay)) => self.superseded(replay.as_deref()),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the answer is given before it is stored");
                Decided { answer: Answer { response, verdict }, unsaid: Some((self, closing)) }
            }
        }
    }

    /// Releases the key, then gives the refusal. Until the key is released the refusal is not given: a retry would find it held.
    pub(crate) async fn release(self, response: Response<Bytes>) -> Decided {
        match self.close(&Closing::Release).await {
            Ok(Finished::Done(_)) => Decided::answer(Answer { response, verdict: Verdict::Released }),
            Ok(Finished::Superseded(_, replay)) => self.superseded(replay.as_deref()),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the key could not be released");
                // The lease may be over, or the release may have arrived, and somebody else may be executing by now.
                let answer = self.shared.refuse(&Problem::in_doubt(), Verdict::InDoubt);
                Decided { answer, unsaid: Some((self, Closing::Release)) }
            }
        }
    }

    /// Of a call that did nothing. Whoever took over was told that nobody knows of the operation, which does not mean that the
    /// former holder's call is not still on its way: only the system of record can say so.
    pub(crate) async fn release_not_run(self, response: Response<Bytes>) -> Decided {
        if !self.is_heir {
            return self.release(response).await;
        }
        let answer = self.shared.refuse(&Problem::in_doubt(), Verdict::InDoubt);
        self.abandon(answer).await
    }

    /// Puts the key in doubt, so that the next request asks at once; then gives the answer, which promises nothing.
    pub(crate) async fn abandon(self, answer: Answer) -> Decided {
        match self.close(&Closing::Abandon).await {
            Ok(Finished::Done(_)) => Decided::answer(answer),
            Ok(Finished::Superseded(_, replay)) => self.superseded(replay.as_deref()),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the key could not be put in doubt");
                Decided { answer, unsaid: Some((self, Closing::Abandon)) }
            }
        }
    }

    /// Goes on saying it until about the end of the lease. After that the key is stale, and recovery finds the same.
    pub(crate) async fn say_later(&self, closing: &Closing) {
        match self.try_until(closing, self.lease_end, LATE_CALL_TIMEOUT).await {
            Ok(Finished::Done(_)) => debug!("the key was finished late"),
            Ok(Finished::Superseded(..)) => warn!("the key was finished by somebody else before this holder could"),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the key is left to recovery");
            }
        }
    }

    /// Somebody else holds or finished the key: whatever this holder has is discarded.
    fn superseded(&self, replay: Option<&Replay>) -> Decided {
        warn!(idem.fencing_token = self.token.0, "superseded: the own answer is discarded");
        Decided::answer(match replay {
            Some(replay) => self.shared.replay(replay),
            None => self.shared.refuse(&Problem::request_in_progress(), Verdict::InProgress),
        })
    }

    async fn close(&self, closing: &Closing) -> Result<Finished, BackendError> {
        self.try_until(closing, Instant::now() + CLOSING_PATIENCE, CLOSING_PATIENCE).await
    }

    async fn try_until(
        &self,
        closing: &Closing,
        until: Instant,
        call_timeout: Duration,
    ) -> Result<Finished, BackendError> {
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.say(closing, until.min(Instant::now() + call_timeout)).await {
                Ok(finished) => return Ok(finished),
                Err(error) => error,
            };
            if Instant::now() + pause >= until {
                return Err(error);
            }
            fault_point!("{}: pause", closing.name());
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn say(&self, closing: &Closing, deadline: Instant) -> Result<Finished, BackendError> {
        let (backend, held) = (&self.shared.backend, (self.operation_id, self.token));
        fault_point!("{}: call", closing.name() => Err(BackendError::at_fault_point()));
        let finished = match closing {
            Closing::Complete(stored) => backend.complete(&self.key, held, stored.clone(), deadline).await,
            Closing::Release => backend.release(&self.key, held, deadline).await,
            Closing::Abandon => backend.abandon(&self.key, held, deadline).await,
        };
        fault_point!("{}: answered", closing.name() => Err(BackendError::at_fault_point()));
        finished
    }
}

impl Closing {
    fn name(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Release => "release",
            Self::Abandon => "abandon",
        }
    }
}
