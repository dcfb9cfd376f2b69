//! What is asked of a key, and what the service answers.

use std::time::{Duration, SystemTime};

use idem_core::{
    AttemptId, FencingToken, Fingerprint, Grant, IdempotencyKey, LEASE_DEFAULT, LeaseDuration, OperationId,
    RETENTION_DEFAULT, Response, RetentionPeriod, Scope, StaleReason, StateName, TraceContext,
};

/// Which key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyId {
    /// Who owns it.
    pub scope: Scope,
    /// Its name.
    pub key: IdempotencyKey,
}

/// What a caller is about to do under a key: one try at it.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Which key.
    pub key: KeyId,
    /// What is asked. The same key with another fingerprint is a mismatch.
    pub fingerprint: Fingerprint,
    /// Names this try: repeated with the same id, Reserve answers the same grant.
    pub attempt_id: AttemptId,
    /// How long the holder is presumed alive.
    pub lease: LeaseDuration,
    /// How long the answer is replayed.
    pub retention: RetentionPeriod,
    /// How long to wait for a running holder; at most [`idem_core::WAIT_MAX`].
    pub wait: Duration,
    /// The trace of this try, for links.
    pub trace_context: TraceContext,
}

/// What Reserve answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Reserved {
    /// The caller holds the key.
    Granted(Granted),
    /// The stored answer.
    Replay(Replay),
    /// Another holder is presumed alive.
    InProgress {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key is bound to another fingerprint.
    Mismatch,
    /// Whether the former holder acted is unknown: Reclaim, ask, then act.
    Stale(Stale),
}

/// What Reclaim answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Reclaimed {
    /// The fence is up: ask, then act.
    Granted(Granted),
    /// It was completed meanwhile.
    Replay(Replay),
    /// Somebody else won.
    InProgress {
        /// When to ask again.
        retry_after: Duration,
    },
    /// There is no reservation any more: Reserve again.
    Absent,
}

/// The right to act until somebody reclaims it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Granted {
    /// Operation id, token, and whether to ask first.
    pub grant: Grant,
    /// By the store's clock.
    pub lease_expires_at: SystemTime,
}

/// The stored answer of an earlier execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// Byte for byte.
    pub response: Response,
    /// When it was stored.
    pub completed_at: SystemTime,
    /// Until when it is replayed, by the store's clock.
    pub expires_at: SystemTime,
    /// How long it is replayed from now on: for who keeps a copy. Drop it a second sooner. Zero when the service does not say.
    pub expires_in: Duration,
    /// The trace of the attempt that was completed.
    pub trace_context: TraceContext,
}

/// The former holder may or may not have acted.
#[derive(Clone, PartialEq, Debug)]
pub struct Stale {
    /// As Reclaim wants it.
    pub operation_id: OperationId,
    /// As Reclaim wants it.
    pub token: FencingToken,
    /// Why.
    pub reason: StaleReason,
    /// The trace of the attempt that is continued.
    pub trace_context: TraceContext,
}

/// What Complete, Release and Abandon answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Finished {
    /// Done. After Complete, until when the answer is replayed.
    Done(Option<SystemTime>),
    /// Nothing changed: discard your own answer.
    Superseded(Superseded),
}

/// What Renew answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Renewed {
    /// The lease now ends then, by the store's clock.
    Until(SystemTime),
    /// Nothing changed: somebody else holds the key.
    Superseded(Superseded),
}

/// The caller is not the holder any more.
#[derive(Clone, PartialEq, Debug)]
pub struct Superseded {
    /// What the key is now; none without a record.
    pub state: Option<StateName>,
    /// The stored answer to give instead, when there is one.
    pub replay: Option<Box<Replay>>,
}

// === impl Intent ===

impl Intent {
    /// A new try with the default lease and retention, that does not wait.
    pub fn new(key: KeyId, fingerprint: Fingerprint) -> Self {
        Self {
            key,
            fingerprint,
            attempt_id: AttemptId(uuid::Uuid::new_v4()),
            lease: LEASE_DEFAULT,
            retention: RETENTION_DEFAULT,
            wait: Duration::ZERO,
            trace_context: TraceContext::default(),
        }
    }
}
