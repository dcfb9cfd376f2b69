//! The whole product in one match: what a command on a key decides.
//!
//! Total, without I/O and without a clock: the store says whether a deadline has passed. A verdict either keeps the record as it
//! is, or asks the store to put another one in its place if nobody was faster.

use crate::{
    AttemptId, Deadline, FencingToken, Fingerprint, GrantedBy, LeaseDuration, OperationId, Record, Response,
    RetentionPeriod, State, StateName, TraceContext,
};

/// What a caller asks of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Claim the key.
    Reserve {
        /// What is asked.
        fingerprint: Fingerprint,
        /// The caller's name for this try.
        attempt_id: AttemptId,
        /// Becomes the operation id if the key is new.
        operation_id: OperationId,
        /// How long the holder is presumed alive.
        lease: LeaseDuration,
        /// How long the answer is replayed.
        retention: RetentionPeriod,
        /// The trace of this try.
        trace_context: TraceContext,
    },
    /// Fence the former holder, seen as `(operation_id, token)`, and take over.
    Reclaim {
        /// As seen.
        operation_id: OperationId,
        /// As seen.
        token: FencingToken,
        /// The caller's name for this try.
        attempt_id: AttemptId,
        /// The recovery lease.
        lease: LeaseDuration,
    },
    /// Store the answer.
    Complete {
        /// Of the grant.
        operation_id: OperationId,
        /// Of the grant.
        token: FencingToken,
        /// The answer.
        response: Response,
    },
    /// Nothing happened.
    Release {
        /// Of the grant.
        operation_id: OperationId,
        /// Of the grant.
        token: FencingToken,
    },
    /// The outcome is unknown.
    Abandon {
        /// Of the grant.
        operation_id: OperationId,
        /// Of the grant.
        token: FencingToken,
    },
    /// The holder lives.
    Renew {
        /// Of the grant.
        operation_id: OperationId,
        /// Of the grant.
        token: FencingToken,
        /// Counted from now.
        lease: LeaseDuration,
    },
    /// An operator settles the key by hand.
    Resolve {
        /// The token that the operator saw; none settles whatever is there.
        seen: Option<FencingToken>,
        /// Completed, released or in doubt.
        outcome: State,
    },
}

/// What happens to the record, and what the caller hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The record stays as it is.
    Keep(Answer),
    /// The store puts this record, if it is still at the one that was judged; then the caller hears the answer.
    Put(Box<Put>, Answer),
}

/// A record to write. Durations, not times: the store adds them to its own now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The next record; its `deadline` is ahead.
    pub record: Record,
    /// How far the state's deadline is from now.
    pub until: Until,
    /// True when a new generation begins, and with it `created_at`.
    pub is_new: bool,
}

/// The deadline of a state, from the moment it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The holder is presumed alive this long.
    Lease(LeaseDuration),
    /// The answer, or the release, is kept this long.
    Retention(RetentionPeriod),
    /// No deadline: in doubt never expires.
    Never,
}

/// The right to act until somebody reclaims it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The intent.
    pub operation_id: OperationId,
    /// Carried by every later command.
    pub token: FencingToken,
    /// How often the key was granted in this generation.
    pub attempts: u32,
    /// A grant from Reclaim: ask the system of record before executing.
    pub must_ask: bool,
}

/// Why a key is stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaleReason {
    /// The lease is over and nobody completed.
    LeaseExpired,
    /// The holder said that the outcome is in doubt.
    InDoubt,
    /// This attempt was granted before and has ended since.
    AttemptEnded,
}

/// What the caller hears. Times come from the store's snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Reserve, Reclaim: the caller holds the key.
    Granted(Grant),
    /// Reserve, Reclaim: the stored answer.
    Replay(Response),
    /// Reserve, Reclaim: another holder is presumed alive, or was faster.
    InProgress,
    /// Reserve: the key is bound to another fingerprint.
    Mismatch,
    /// Reserve: whether the former holder acted is unknown.
    Stale(OperationId, FencingToken, StaleReason),
    /// Complete: the answer is stored.
    Completed,
    /// Release: the key is free.
    Released,
    /// Abandon: the key is in doubt.
    Abandoned,
    /// Renew: the lease is extended.
    Renewed,
    /// Complete, Release, Abandon, Renew: not the holder any more; none means no record.
    Superseded(Option<StateName>),
    /// The same, and this is what the caller's own operation was answered with.
    SupersededBy(Response),
    /// Resolve: settled by hand.
    Resolved,
    /// Resolve: a stored answer never changes.
    AlreadyCompleted,
    /// Resolve: the token is not the one that was seen.
    TokenChanged(FencingToken),
    /// Reclaim, Resolve: there is no record, or its retention is over.
    Absent,
}

/// Decides what `command` does to the record under its key.
pub fn decide(record: Option<&Record>, command: Command) -> Verdict {
    use Command as C;
    match (command, record) {
        (C::Reserve { fingerprint, attempt_id, operation_id, lease, retention, trace_context }, record) => {
            let wish = Wish { fingerprint, attempt_id, operation_id, lease, retention, trace_context };
            reserve(record, wish)
        }
        (C::Reclaim { .. } | C::Resolve { .. }, None) => Verdict::Keep(Answer::Absent),
        (C::Reclaim { .. } | C::Resolve { .. }, Some(r)) if r.is_over() => Verdict::Keep(Answer::Absent),
        (C::Reclaim { operation_id, token, attempt_id, lease }, Some(r)) => {
            reclaim(r, (operation_id, token), attempt_id, lease)
        }
        // After its retention a record is as good as absent, whether or not the purge has run.
        (C::Complete { .. } | C::Release { .. } | C::Abandon { .. } | C::Renew { .. }, Some(r)) if r.is_over() => {
            Verdict::Keep(Answer::Superseded(None))
        }
        (C::Complete { operation_id, token, response }, Some(r)) if r.is_current(operation_id, token) => {
            complete(r, response)
        }
        (C::Release { operation_id, token }, Some(r)) if r.is_current(operation_id, token) => release(r),
        (C::Abandon { operation_id, token }, Some(r)) if r.is_current(operation_id, token) => abandon(r),
        (C::Renew { operation_id, token, lease }, Some(r)) if r.is_current(operation_id, token) => renew(r, lease),
        (
            C::Complete { operation_id, .. }
            | C::Release { operation_id, .. }
            | C::Abandon { operation_id, .. }
            | C::Renew { operation_id, .. },
            record,
        ) => superseded(record, operation_id),
        (C::Resolve { seen, outcome }, Some(r)) => resolve(r, seen, outcome),
    }
}

/// A Reserve, unpacked.
struct Wish {
    fingerprint: Fingerprint,
    attempt_id: AttemptId,
    operation_id: OperationId,
    lease: LeaseDuration,
    retention: RetentionPeriod,
    trace_context: TraceContext,
}

fn reserve(record: Option<&Record>, wish: Wish) -> Verdict {
    let Some(r) = record else { return first_grant(FencingToken::FIRST, wish) };
    match &r.state {
        // The token continues, so that a holder from before the retention can never meet its own number again.
        _ if r.is_over() => first_grant(r.token.next(), wish),
        _ if r.fingerprint != wish.fingerprint => Verdict::Keep(Answer::Mismatch),
        State::Completed(response) => Verdict::Keep(Answer::Replay(response.clone())),
        State::InProgress if r.attempt_id == wish.attempt_id && !r.is_lease_over() => {
            Verdict::Keep(Answer::Granted(grant_of(r)))
        }
        // A late repeat of an attempt that has ended: its caller is gone, and a grant would be held by nobody.
        State::Released if r.has_ended(wish.attempt_id) => stale(r, StaleReason::AttemptEnded),
        // Nothing happened: the same operation, the next attempt.
        State::Released => grant_again(r, wish),
        State::InProgress if r.is_lease_over() => stale(r, StaleReason::LeaseExpired),
        State::InProgress => Verdict::Keep(Answer::InProgress),
        State::InDoubt => stale(r, StaleReason::InDoubt),
    }
}

fn reclaim(r: &Record, seen: (OperationId, FencingToken), attempt_id: AttemptId, lease: LeaseDuration) -> Verdict {
    let is_seen = r.is_current(seen.0, seen.1);
    // A repeat of the call that made this grant saw the token before it.
    let is_mine =
        r.attempt_id == attempt_id && r.granted_by == GrantedBy::Reclaim && r.is_current(seen.0, seen.1.next());
    match &r.state {
        // The key's next operation may be another request's: its answer is nobody's who saw this one.
        State::Completed(_) if r.operation_id != seen.0 => Verdict::Keep(Answer::InProgress),
        State::Completed(response) => Verdict::Keep(Answer::Replay(response.clone())),
        State::InProgress if !r.is_lease_over() && is_mine => Verdict::Keep(Answer::Granted(grant_of(r))),
        State::InProgress if !r.is_lease_over() => Verdict::Keep(Answer::InProgress),
        // A late repeat of an attempt that has ended, as in Reserve.
        State::InProgress | State::InDoubt | State::Released if is_seen && !r.has_ended(attempt_id) => {
            let record = Record { granted_by: GrantedBy::Reclaim, ..next_attempt(r, attempt_id) };
            put(record, Until::Lease(lease), |r| Answer::Granted(grant_of(r)))
        }
        State::InProgress | State::InDoubt | State::Released => Verdict::Keep(Answer::InProgress),
    }
}

fn complete(r: &Record, response: Response) -> Verdict {
    match r.state {
        // The lease is not consulted on purpose: until somebody reclaims, an expired holder is still the only one who may have
        // charged the card, and refusing its result would force a needless question to the acquirer.
        State::InProgress | State::InDoubt => {
            let record = Record { state: State::Completed(response), ..settled(r) };
            put(record, Until::Retention(r.retention), |_| Answer::Completed)
        }
        State::Completed(_) => Verdict::Keep(Answer::Completed),
        State::Released => superseded(Some(r), r.operation_id),
    }
}

fn release(r: &Record) -> Verdict {
    match r.state {
        State::InProgress => {
            put(Record { state: State::Released, ..settled(r) }, Until::Retention(r.retention), |_| Answer::Released)
        }
        State::Released => Verdict::Keep(Answer::Released),
        State::InDoubt | State::Completed(_) => superseded(Some(r), r.operation_id),
    }
}

fn abandon(r: &Record) -> Verdict {
    match r.state {
        State::InProgress => put(Record { state: State::InDoubt, ..settled(r) }, Until::Never, |_| Answer::Abandoned),
        State::InDoubt => Verdict::Keep(Answer::Abandoned),
        State::Completed(_) | State::Released => superseded(Some(r), r.operation_id),
    }
}

fn renew(r: &Record, lease: LeaseDuration) -> Verdict {
    match r.state {
        State::InProgress => put(settled(r), Until::Lease(lease), |_| Answer::Renewed),
        State::InDoubt | State::Completed(_) | State::Released => superseded(Some(r), r.operation_id),
    }
}

fn resolve(r: &Record, seen: Option<FencingToken>, outcome: State) -> Verdict {
    if let State::Completed(_) = r.state {
        return Verdict::Keep(Answer::AlreadyCompleted);
    }
    if seen.is_some_and(|seen| seen != r.token) {
        return Verdict::Keep(Answer::TokenChanged(r.token));
    }
    let until = match outcome {
        State::Completed(_) | State::Released => Until::Retention(r.retention),
        // By hand a key is only ever settled or put in doubt; a grant without a holder would help nobody.
        State::InProgress | State::InDoubt => Until::Never,
    };
    let outcome = if outcome == State::InProgress { State::InDoubt } else { outcome };
    // The token is raised, so that whoever holds the key can change nothing any more.
    put(Record { token: r.token.next(), state: outcome, ..settled(r) }, until, |_| Answer::Resolved)
}

// === pieces of verdicts ===

fn first_grant(token: FencingToken, wish: Wish) -> Verdict {
    let record = Record {
        operation_id: wish.operation_id,
        token,
        fingerprint: wish.fingerprint,
        attempt_id: wish.attempt_id,
        granted_by: GrantedBy::Reserve,
        past_attempts: Vec::new(),
        attempts: 1,
        retention: wish.retention,
        trace_context: wish.trace_context,
        state: State::InProgress,
        deadline: Deadline::Ahead,
    };
    let answer = Answer::Granted(grant_of(&record));
    Verdict::Put(Box::new(Put { record, until: Until::Lease(wish.lease), is_new: true }), answer)
}

fn grant_again(r: &Record, wish: Wish) -> Verdict {
    let record = Record {
        granted_by: GrantedBy::Reserve,
        retention: wish.retention,
        trace_context: wish.trace_context,
        ..next_attempt(r, wish.attempt_id)
    };
    put(record, Until::Lease(wish.lease), |r| Answer::Granted(grant_of(r)))
}

/// The record held by `attempt_id` under the next token; the former attempt has ended.
fn next_attempt(r: &Record, attempt_id: AttemptId) -> Record {
    let mut past_attempts = r.past_attempts.clone();
    if past_attempts.len() >= Record::PAST_ATTEMPTS_MAX {
        past_attempts.drain(..=past_attempts.len() - Record::PAST_ATTEMPTS_MAX);
    }
    past_attempts.push(r.attempt_id);
    #[cfg(feature = "sabotage")]
    if crate::sabotage::breaks("operation-id") {
        let operation_id = OperationId(attempt_id.0);
        return Record { operation_id, token: r.token.next(), attempt_id, state: State::InProgress, ..settled(r) };
    }
    Record {
        token: r.token.next(),
        attempt_id,
        past_attempts,
        attempts: r.attempts.saturating_add(1),
        state: State::InProgress,
        ..settled(r)
    }
}

/// The same record, about to be written with a deadline of its own.
fn settled(r: &Record) -> Record {
    Record { deadline: Deadline::Ahead, ..r.clone() }
}

fn put(record: Record, until: Until, answer: impl FnOnce(&Record) -> Answer) -> Verdict {
    let answer = answer(&record);
    Verdict::Put(Box::new(Put { record, until, is_new: false }), answer)
}

fn grant_of(r: &Record) -> Grant {
    Grant {
        operation_id: r.operation_id,
        token: r.token,
        attempts: r.attempts,
        must_ask: r.granted_by == GrantedBy::Reclaim,
    }
}

fn stale(r: &Record, reason: StaleReason) -> Verdict {
    Verdict::Keep(Answer::Stale(r.operation_id, r.token, reason))
}

/// What stands now is told to everyone; the answer only to holders of the operation that it answers.
fn superseded(record: Option<&Record>, asked: OperationId) -> Verdict {
    Verdict::Keep(match record {
        Some(Record { state: State::Completed(response), operation_id, .. }) if *operation_id == asked => {
            Answer::SupersededBy(response.clone())
        }
        record => Answer::Superseded(record.map(|r| r.state.name())),
    })
}
