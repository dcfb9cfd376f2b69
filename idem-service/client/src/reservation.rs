//! A key that is held, as a value that should be finished.

use std::time::{Duration, SystemTime};

use idem_core::{AttemptId, FencingToken, LeaseDuration, OperationId, Response};
use tokio::time::Instant;
use tracing::warn;

use crate::{ClientError, Finished, Granted, IdemClient, Intent, KeyId, Reclaimed, Renewed, Replay, Reserved};

/// What to do about an intent.
#[derive(Debug)]
pub enum Begun {
    /// The key is held. Execute; or, when [`Reservation::must_ask`], ask the system of record first.
    Held(Reservation),
    /// It has been done: give this answer.
    Replay(Replay),
    /// Somebody else is at it.
    InProgress {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key is bound to another request.
    Mismatch,
}

/// A key that is held: finish it with [`complete`](Self::complete), [`release`](Self::release) or [`abandon`](Self::abandon).
///
/// Dropped unfinished (a crash, a lost connection), the lease runs out and the next caller has to ask what happened. A call that
/// failed leaves the reservation as it is, so it can be made again.
#[must_use = "a reservation that is not finished keeps its key until the lease is over"]
pub struct Reservation {
    client: IdemClient,
    key: KeyId,
    granted: Granted,
    is_finished: bool,
}

impl IdemClient {
    /// Reserves a key, and fences the former holder if there was one that did not finish.
    pub async fn begin(&self, intent: &Intent, deadline: Instant) -> Result<Begun, ClientError> {
        let stale = match self.reserve(intent, deadline).await? {
            Reserved::Granted(granted) => return Ok(Begun::Held(self.hold(&intent.key, granted))),
            Reserved::Replay(replay) => return Ok(Begun::Replay(replay)),
            Reserved::InProgress { retry_after } => return Ok(Begun::InProgress { retry_after }),
            Reserved::Mismatch => return Ok(Begun::Mismatch),
            Reserved::Stale(stale) => stale,
        };
        // A new attempt: the one that was reserved with may be the one that has ended.
        let attempt_id = AttemptId(uuid::Uuid::new_v4());
        let seen = (stale.operation_id, stale.token);
        Ok(match self.reclaim(&intent.key, seen, attempt_id, intent.lease, deadline).await? {
            Reclaimed::Granted(granted) => Begun::Held(self.hold(&intent.key, granted)),
            Reclaimed::Replay(replay) => Begun::Replay(replay),
            Reclaimed::InProgress { retry_after } => Begun::InProgress { retry_after },
            // The record went away in between: the next try finds the key new.
            Reclaimed::Absent => Begun::InProgress { retry_after: Duration::from_secs(1) },
        })
    }

    /// A grant of this client's Reserve or Reclaim, as a value that should be finished.
    pub fn hold(&self, key: &KeyId, granted: Granted) -> Reservation {
        Reservation { client: self.clone(), key: key.clone(), granted, is_finished: false }
    }
}

impl Reservation {
    /// Derive every id downstream from it.
    pub fn operation_id(&self) -> OperationId {
        self.granted.grant.operation_id
    }

    /// Carry it along: whoever acts on it refuses a lower one than it has seen.
    pub fn token(&self) -> FencingToken {
        self.granted.grant.token
    }

    /// A former holder may have acted: ask the system of record before executing.
    pub fn must_ask(&self) -> bool {
        self.granted.grant.must_ask
    }

    /// How often the key was granted, this time included.
    pub fn attempts(&self) -> u32 {
        self.granted.grant.attempts
    }

    /// By the store's clock.
    pub fn lease_expires_at(&self) -> SystemTime {
        self.granted.lease_expires_at
    }

    /// Stores the answer; durable when it returns. When superseded, discard the answer and give the stored one.
    pub async fn complete(&mut self, response: Response, deadline: Instant) -> Result<Finished, ClientError> {
        let finished = self.client.complete(&self.key, self.held(), &response, deadline).await?;
        self.is_finished = true;
        Ok(finished)
    }

    /// Says that nothing happened. Only when that is certain: a call that timed out may have arrived.
    pub async fn release(&mut self, deadline: Instant) -> Result<Finished, ClientError> {
        let finished = self.client.release(&self.key, self.held(), deadline).await?;
        self.is_finished = true;
        Ok(finished)
    }

    /// Says that the outcome is unknown, so that the next caller asks at once.
    pub async fn abandon(&mut self, deadline: Instant) -> Result<Finished, ClientError> {
        let finished = self.client.abandon(&self.key, self.held(), deadline).await?;
        self.is_finished = true;
        Ok(finished)
    }

    /// Extends the lease, counted from now.
    pub async fn renew(&mut self, lease: LeaseDuration, deadline: Instant) -> Result<Renewed, ClientError> {
        let renewed = self.client.renew(&self.key, self.held(), lease, deadline).await?;
        if let Renewed::Until(lease_expires_at) = renewed {
            self.granted.lease_expires_at = lease_expires_at;
        }
        Ok(renewed)
    }

    fn held(&self) -> (OperationId, FencingToken) {
        (self.operation_id(), self.token())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_finished {
            warn!(
                idem.scope = %self.key.scope,
                idem.operation_id = %self.operation_id(),
                idem.fencing_token = self.token().0,
                "a reservation was dropped unfinished; its key is in progress until the lease is over"
            );
        }
    }
}

// Without the client, whose connections have nothing to show.
impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("key", &self.key).field("granted", &self.granted).finish_non_exhaustive()
    }
}
