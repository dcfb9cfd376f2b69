//! What a store keeps under a key, as it judges it by its clock.

use std::sync::Arc;

use crate::{AttemptId, FencingToken, Fingerprint, OperationId, Response, RetentionPeriod};

/// The record of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The intent; new only after the retention has passed.
    pub operation_id: OperationId,
    /// Raised at every grant.
    pub token: FencingToken,
    /// What was asked; it binds the key until the retention is over.
    pub fingerprint: Fingerprint,
    /// The attempt of the latest grant.
    pub attempt_id: AttemptId,
    /// Which command made the latest grant.
    pub granted_by: GrantedBy,
    /// Attempts whose grants have ended, latest last; bounded by [`Record::PAST_ATTEMPTS_MAX`].
    pub past_attempts: Vec<AttemptId>,
    /// How often the key was granted in this generation.
    pub attempts: u32,
    /// How long the answer is replayed, or the release kept; the latest Reserve's counts.
    pub retention: RetentionPeriod,
    /// The trace of the latest attempt, for links.
    pub trace_context: TraceContext,
    /// Where the key is in its life.
    pub state: State,
    /// Whether the state's deadline (lease, or retention) has passed by the store's clock.
    pub deadline: Deadline,
}

/// Where a key is in its life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Somebody holds it. Its deadline is the lease.
    InProgress,
    /// A holder said that it does not know what happened. It has no deadline.
    InDoubt,
    /// The answer is stored. Its deadline is the retention.
    Completed(Response),
    /// Nothing happened. Its deadline is the retention.
    Released,
}

/// A state without what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StateName {
    /// See [`State::InProgress`].
    InProgress,
    /// See [`State::InDoubt`].
    InDoubt,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Released`].
    Released,
}

/// A deadline, judged by the store's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// Not reached, or the state has none.
    Ahead,
    /// Reached.
    Passed,
}

/// Which command made a grant; one from Reclaim obliges its holder to ask before it executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantedBy {
    /// A first try, or one after a release: execute.
    Reserve,
    /// The fence of an unfinished attempt: ask, then act.
    Reclaim,
}

/// A W3C `traceparent`, or nothing. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceContext(Arc<str>);

/// A trace context that is too long or not printable ASCII.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the trace context must be at most {} printable ASCII characters", TraceContext::LEN_MAX)]
pub struct TraceContextError;

impl TraceContext {
    const LEN_MAX: usize = 128;

    /// Checks the bounds; empty means none.
    pub fn new(traceparent: impl Into<String>) -> Result<Self, TraceContextError> {
        let traceparent = traceparent.into();
        let fits = traceparent.len() <= Self::LEN_MAX && traceparent.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(traceparent.into())) } else { Err(TraceContextError) }
    }

    /// The `traceparent`, empty when there is none.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Record {
    /// A late repeat of a message is minutes old at most; a key is not granted this often in that time.
    pub const PAST_ATTEMPTS_MAX: usize = 64;

    /// The lease is over and nobody has finished.
    pub fn is_lease_over(&self) -> bool {
        self.state == State::InProgress && self.deadline == Deadline::Passed
    }

    /// The retention is over: the key is as good as absent, but for its token.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Completed(_) | State::Released) && self.deadline == Deadline::Passed
    }

    /// `operation_id` and `token` are the current ones.
    pub fn is_current(&self, operation_id: OperationId, token: FencingToken) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::breaks("fence") {
            return self.operation_id == operation_id;
        }
        self.operation_id == operation_id && self.token == token
    }

    /// `attempt_id` was granted in this generation and its grant has ended.
    pub fn has_ended(&self, attempt_id: AttemptId) -> bool {
        self.past_attempts.contains(&attempt_id) || (self.attempt_id == attempt_id && self.state != State::InProgress)
    }
}

impl State {
    /// The state without what it carries.
    pub fn name(&self) -> StateName {
        match self {
            State::InProgress => StateName::InProgress,
            State::InDoubt => StateName::InDoubt,
            State::Completed(_) => StateName::Completed,
            State::Released => StateName::Released,
        }
    }
}

impl StateName {
    /// As written in SQL, metrics and docs.
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::InProgress => "in_progress",
            StateName::InDoubt => "in_doubt",
            StateName::Completed => "completed",
            StateName::Released => "released",
        }
    }
}
