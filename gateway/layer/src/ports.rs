//! What the layer needs from outside: a backend that keeps keys, and somebody who knows what happened.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use idem_core::{
    AttemptId, FencingToken, Fingerprint, Grant, IdempotencyKey, LeaseDuration, OperationId, Response, RetentionPeriod,
    Scope, StateName, TraceContext,
};
use tokio::time::Instant;

/// Which key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyId {
    /// Who owns it.
    pub scope: Scope,
    /// Its name.
    pub key: IdempotencyKey,
}

/// One try at a key.
#[derive(Clone, Debug)]
pub struct ReserveCall {
    /// Which key.
    pub key: KeyId,
    /// What is asked.
    pub fingerprint: Fingerprint,
    /// This try.
    pub attempt_id: AttemptId,
    /// How long the holder is presumed alive.
    pub lease: LeaseDuration,
    /// How long the answer is replayed.
    pub retention: RetentionPeriod,
    /// How long to wait for a running holder.
    pub wait: std::time::Duration,
    /// For links.
    pub trace_context: TraceContext,
}

/// A grant and when its lease ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Held {
    /// The right to act.
    pub grant: Grant,
    /// By the store's clock.
    pub lease_expires_at: SystemTime,
}

/// The stored answer of an earlier execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// Byte for byte.
    pub response: Response,
    /// Until when it is replayed, by the store's clock.
    pub expires_at: SystemTime,
    /// How long it is replayed from now on; zero when that is not known.
    pub expires_in: std::time::Duration,
    /// The trace of the attempt that was completed.
    pub trace_context: TraceContext,
}

/// What Reserve answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Reserved {
    /// Execute (or, when `must_ask`, ask first).
    Granted(Held),
    /// Answer this.
    Replay(Replay),
    /// Somebody else is at it.
    InProgress,
    /// The key is bound to another request.
    Mismatch,
    /// Reclaim, ask, then act.
    Stale {
        /// Seen.
        operation_id: OperationId,
        /// Seen.
        token: FencingToken,
        /// The trace of the attempt that is continued.
        trace_context: TraceContext,
    },
}

/// What Reclaim answers.
#[derive(Clone, PartialEq, Debug)]
pub enum Reclaimed {
    /// The fence is up: ask, then act.
    Granted(Held),
    /// It was completed meanwhile.
    Replay(Replay),
    /// Somebody else won, or the record moved on.
    InProgress,
}

/// What Complete, Release and Abandon answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Finished {
    /// Done. For Complete, until when the answer is replayed.
    Done(Option<SystemTime>),
    /// Not the holder any more: the state now, and the stored answer if there is one.
    Superseded(Option<StateName>, Option<Box<Replay>>),
}

/// The backend did not answer in time or cannot be reached. Repeating the call is safe.
#[derive(Debug, thiserror::Error)]
#[error("the idempotency service cannot be reached")]
pub struct BackendError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

impl BackendError {
    /// What a fault point makes of a call: the request or its answer is lost.
    pub(crate) fn at_fault_point() -> Self {
        Self("the call is lost at a fault point".into())
    }
}

/// Keeps keys. Every call must return by its deadline.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Claims a key; repeated inside with the same attempt id until the deadline.
    async fn reserve(&self, call: ReserveCall, deadline: Instant) -> Result<Reserved, BackendError>;
    /// Fences the former holder.
    async fn reclaim(
        &self,
        key: &KeyId,
        seen: (OperationId, FencingToken),
        attempt_id: AttemptId,
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Reclaimed, BackendError>;
    /// Stores the answer.
    async fn complete(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        response: Response,
        deadline: Instant,
    ) -> Result<Finished, BackendError>;
    /// Nothing happened.
    async fn release(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError>;
    /// Unknown.
    async fn abandon(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError>;
}

/// What the holder does with an answer. The inner service puts one into its response's extensions; without one the outcome is
/// unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// Decided for good: complete the key with it.
    Final,
    /// Decided without effect, by whoever knows all that this operation ever began: release the key.
    NoEffect,
    /// This call did nothing. What a former holder's did is another question: release the key, unless it was taken over from one.
    NotRun,
    /// Not known, and nothing to show: ask once more, then abandon.
    Unknown,
    /// Begun but not decided (202): answer it, and abandon at once.
    Undecided,
}

/// The inner service's word on its answer, in the response's extensions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What to do with the answer.
    pub label: Label,
    /// It comes from an earlier execution of this operation.
    pub is_replayed: bool,
    /// The id of what was made, for operators.
    pub resource_id: String,
}

/// The right to act, in the request's extensions: the inner service passes it on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Permit {
    /// Derive ids from it.
    pub operation_id: OperationId,
    /// Carry it along.
    pub token: FencingToken,
    /// Be done by then; it lies inside the lease.
    pub deadline: Instant,
}

/// What the system of record knows about an operation.
#[derive(Debug)]
pub enum Found {
    /// Decided: the answer as it was made then, and its outcome (Final or NoEffect).
    Settled(http::Response<Bytes>, Outcome),
    /// Somebody downstream has not decided.
    Pending,
    /// Not known anywhere now.
    Unknown,
}

/// The system of record could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// It, or somebody behind it, cannot be reached.
    #[error("the system of record cannot be asked")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It has seen a higher token: somebody else took over.
    #[error("a later holder has taken over")]
    Fenced,
}

/// Knows what happened. Asking records the token, so that no older holder can act after the answer.
#[async_trait]
pub trait Recover: Send + Sync + 'static {
    /// What happened to this operation?
    async fn lookup(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        deadline: Instant,
    ) -> Result<Found, RecoverError>;
}
