//! The register of keys: a record in a form that can be hashed, and the product's own `decide`.
//!
//! What `decide` never looks at is left out of the record: counts, durations, traces. What it looks at is translated, decided by the
//! real function, and translated back.

use std::sync::LazyLock;

use idem_core::{
    Answer, AttemptId, Command, Deadline, FencingToken, Fingerprint, GrantedBy, LEASE_DEFAULT, OperationId,
    RETENTION_DEFAULT, Record, Response, State, TraceContext, Verdict, decide,
};
use uuid::Uuid;

use crate::{
    mutations::Mutation,
    names::{Attempt, Grant, Op, Outcome, Token},
};

/// The record of the one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The current operation.
    pub op: Op,
    /// The latest token.
    pub token: Token,
    /// The attempt of the latest grant.
    pub attempt: Attempt,
    /// The latest grant came from Reclaim.
    pub is_reclaimed: bool,
    /// Attempts that have ended and that somebody can still name; a bit each.
    pub past: u32,
    /// Where the key is in its life.
    pub state: KeyState,
    /// Its deadline, lease or retention, has passed.
    pub is_past_deadline: bool,
}

/// Where the key is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyState {
    /// Held.
    InProgress,
    /// The holder does not know.
    InDoubt,
    /// Answered for good.
    Completed(Outcome),
    /// Nothing happened.
    Released,
}

/// A call to the register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ask {
    /// Claim the key.
    Reserve(Attempt),
    /// Fence the holder that was seen.
    Reclaim(Grant, Attempt),
    /// Store the answer.
    Complete(Grant, Outcome),
    /// Nothing happened.
    Release(Grant),
    /// Unknown.
    Abandon(Grant),
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reserve(_) => f.write_str("reserve the key"),
            Self::Reclaim(grant, _) => write!(f, "take over from {grant}"),
            Self::Complete(grant, outcome) => write!(f, "complete {grant}: {outcome}"),
            Self::Release(grant) => write!(f, "release {grant}"),
            Self::Abandon(grant) => write!(f, "put {grant} in doubt"),
        }
    }
}

/// What the register answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The caller holds the key; true when it must ask first.
    Granted(Grant, bool),
    /// The stored answer.
    Replay(Outcome),
    /// Somebody else holds it, or was faster.
    InProgress,
    /// Whether the former holder acted is unknown.
    Stale(Grant),
    /// Completed, released, abandoned.
    Done,
    /// Not the holder any more; with the stored answer if there is one.
    Superseded(Option<Outcome>),
}

impl Key {
    /// The grant of whoever holds the key, or held it last.
    pub fn grant(&self) -> Grant {
        Grant { op: self.op, token: self.token }
    }

    /// Nobody is presumed to be at it, and nobody knows.
    pub fn is_stale(&self) -> bool {
        match self.state {
            KeyState::InProgress => self.is_past_deadline,
            KeyState::InDoubt => true,
            KeyState::Completed(_) | KeyState::Released => false,
        }
    }

    /// Finished, and its retention is over.
    pub fn is_over(&self) -> bool {
        matches!(self.state, KeyState::Completed(_) | KeyState::Released) && self.is_past_deadline
    }
}

/// Carries a call out: the record afterwards, and what the caller hears. `fresh` becomes the operation of a new generation.
pub fn carry_out(key: Option<&Key>, ask: Ask, fresh: Op, mutation: Option<Mutation>) -> (Option<Key>, Heard) {
    let mut seen = key.cloned();
    let mut ask = ask;
    if let Some(mutation) = mutation {
        spoil_before(mutation, &mut seen, &mut ask);
    }
    let record = seen.as_ref().map(record);
    let (mut next, mut heard) = match decide(record.as_ref(), command(ask, fresh)) {
        Verdict::Keep(answer) => (key.cloned(), heard(&answer)),
        Verdict::Put(put, answer) => (Some(from_record(&put.record)), heard(&answer)),
    };
    if let Some(mutation) = mutation {
        spoil_after(mutation, (key, fresh), &mut next, &mut heard);
    }
    (next, heard)
}

/// Mutations of the register that falsify what the decision sees.
fn spoil_before(mutation: Mutation, seen: &mut Option<Key>, ask: &mut Ask) {
    let Some(key) = seen else { return };
    match (mutation, &*ask) {
        (Mutation::ReleaseWithoutToken, Ask::Release(_)) => {
            *ask = Ask::Release(key.grant());
            key.state = KeyState::InProgress;
        }
        (Mutation::CountAnewAfterRelease, Ask::Reserve(_)) if key.state == KeyState::Released => key.token = Token(0),
        _ => {}
    }
}

/// Mutations of the register that falsify what is written.
fn spoil_after(mutation: Mutation, seen: (Option<&Key>, Op), next: &mut Option<Key>, heard: &mut Heard) {
    match (mutation, seen.0, &mut *next, &mut *heard) {
        (Mutation::DropTheFence, Some(before), Some(key), Heard::Granted(grant, true)) => {
            key.token = before.token;
            grant.token = before.token;
        }
        (Mutation::NewOperationOnReclaim, _, Some(key), Heard::Granted(grant, true)) => {
            key.op = seen.1;
            grant.op = seen.1;
        }
        (Mutation::DeleteOnRelease, _, Some(key), _) if key.state == KeyState::Released => *next = None,
        _ => {}
    }
}

// === translation ===

static FINGERPRINT: LazyLock<Fingerprint> =
    LazyLock::new(|| Fingerprint::from_slice(&[7; 32]).expect("a fingerprint has 32 bytes"));

fn record(key: &Key) -> Record {
    Record {
        operation_id: operation_id(key.op),
        token: FencingToken(i64::from(key.token.0)),
        fingerprint: *FINGERPRINT,
        attempt_id: attempt_id(key.attempt),
        granted_by: if key.is_reclaimed { GrantedBy::Reclaim } else { GrantedBy::Reserve },
        past_attempts: (0..32).filter(|bit| key.past & (1 << bit) != 0).map(|bit| attempt_id(Attempt(bit))).collect(),
        attempts: 1,
        retention: RETENTION_DEFAULT,
        trace_context: TraceContext::default(),
        state: match key.state {
            KeyState::InProgress => State::InProgress,
            KeyState::InDoubt => State::InDoubt,
            KeyState::Completed(outcome) => State::Completed(response(outcome)),
            KeyState::Released => State::Released,
        },
        deadline: if key.is_past_deadline { Deadline::Passed } else { Deadline::Ahead },
    }
}

fn from_record(record: &Record) -> Key {
    Key {
        op: Op(number(record.operation_id.0)),
        token: Token(u8::try_from(record.token.0).expect("a model grants few tokens")),
        attempt: Attempt(number(record.attempt_id.0)),
        is_reclaimed: record.granted_by == GrantedBy::Reclaim,
        past: record.past_attempts.iter().fold(0, |past, attempt| past | 1 << number(attempt.0)),
        state: match &record.state {
            State::InProgress => KeyState::InProgress,
            State::InDoubt => KeyState::InDoubt,
            State::Completed(response) => KeyState::Completed(Outcome::from_bytes(response.body())),
            State::Released => KeyState::Released,
        },
        is_past_deadline: record.deadline == Deadline::Passed,
    }
}

fn command(ask: Ask, fresh: Op) -> Command {
    match ask {
        Ask::Reserve(attempt) => Command::Reserve {
            fingerprint: *FINGERPRINT,
            attempt_id: attempt_id(attempt),
            operation_id: operation_id(fresh),
            lease: LEASE_DEFAULT,
            retention: RETENTION_DEFAULT,
            trace_context: TraceContext::default(),
        },
        Ask::Reclaim(seen, attempt) => {
            let (operation_id, token) = ids(seen);
            Command::Reclaim { operation_id, token, attempt_id: attempt_id(attempt), lease: LEASE_DEFAULT }
        }
        Ask::Complete(grant, outcome) => {
            let (operation_id, token) = ids(grant);
            Command::Complete { operation_id, token, response: response(outcome) }
        }
        Ask::Release(grant) => {
            let (operation_id, token) = ids(grant);
            Command::Release { operation_id, token }
        }
        Ask::Abandon(grant) => {
            let (operation_id, token) = ids(grant);
            Command::Abandon { operation_id, token }
        }
    }
}

fn heard(answer: &Answer) -> Heard {
    match answer {
        Answer::Granted(grant) => {
            let token = Token(u8::try_from(grant.token.0).expect("a model grants few tokens"));
            Heard::Granted(Grant { op: Op(number(grant.operation_id.0)), token }, grant.must_ask)
        }
        Answer::Replay(response) => Heard::Replay(Outcome::from_bytes(response.body())),
        Answer::Stale(operation_id, token, _) => Heard::Stale(Grant {
            op: Op(number(operation_id.0)),
            token: Token(u8::try_from(token.0).expect("a model grants few tokens")),
        }),
        Answer::Completed | Answer::Released | Answer::Abandoned => Heard::Done,
        Answer::Superseded(_) => Heard::Superseded(None),
        Answer::SupersededBy(response) => Heard::Superseded(Some(Outcome::from_bytes(response.body()))),
        // Absent: there is nothing to reclaim any more, and the client comes again.
        Answer::InProgress | Answer::Absent => Heard::InProgress,
        Answer::Mismatch | Answer::Renewed | Answer::Resolved | Answer::AlreadyCompleted | Answer::TokenChanged(_) => {
            unreachable!("the model sends one request, renews nothing and resolves nothing by hand")
        }
    }
}

fn response(outcome: Outcome) -> Response {
    Response::new(200, Vec::new(), outcome.to_bytes().to_vec().into(), String::new())
        .expect("three bytes are an answer")
}

fn ids(grant: Grant) -> (OperationId, FencingToken) {
    (operation_id(grant.op), FencingToken(i64::from(grant.token.0)))
}

fn operation_id(op: Op) -> OperationId {
    OperationId(Uuid::from_u128(u128::from(op.0)))
}

fn attempt_id(attempt: Attempt) -> AttemptId {
    AttemptId(Uuid::from_u128(u128::from(attempt.0)))
}

fn number(id: Uuid) -> u8 {
    u8::try_from(id.as_u128()).expect("the model's ids are small numbers")
}
