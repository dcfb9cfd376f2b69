//! Random lives of a key against a small oracle that was written from the rules, not from the code.
//!
//! The oracle keeps the history of a key as plain facts (who was granted what, what was stored) and predicts each answer from
//! them; `decide` must agree, and invariants that span a whole life must hold.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod support;

use idem_core::{
    Answer, AttemptId, Command, Deadline, FencingToken, OperationId, Record, Response, State, Verdict, decide,
};
use proptest::prelude::*;
use support::*;

/// One thing that happens to a key.
#[derive(Clone, Debug)]
enum Event {
    Reserve { request: u8, attempt: u8 },
    Reclaim { who: u8, attempt: u8 },
    Complete { who: u8, answer: u32 },
    Release { who: u8 },
    Abandon { who: u8 },
    Renew { who: u8 },
    DeadlinePasses,
    Purge,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..3u8, 0..6u8).prop_map(|(request, attempt)| Event::Reserve { request, attempt }),
        3 => (0..4u8, 0..6u8).prop_map(|(who, attempt)| Event::Reclaim { who, attempt }),
        3 => (0..4u8, 0..9u32).prop_map(|(who, answer)| Event::Complete { who, answer }),
        2 => (0..4u8).prop_map(|who| Event::Release { who }),
        2 => (0..4u8).prop_map(|who| Event::Abandon { who }),
        1 => (0..4u8).prop_map(|who| Event::Renew { who }),
        3 => Just(Event::DeadlinePasses),
        1 => Just(Event::Purge),
    ]
}

/// The facts about a key.
#[derive(Default)]
struct Oracle {
    /// Every grant ever made, oldest first.
    grants: Vec<(OperationId, FencingToken, AttemptId)>,
    phase: Phase,
    request: u8,
    answer: Option<Response>,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
enum Phase {
    #[default]
    Nothing,
    Held,
    HeldTooLong,
    Doubt,
    Stored,
    Freed,
    /// The retention is over.
    Over,
}

impl Oracle {
    /// The grant `who` back from the latest, as a caller remembers it.
    fn remembered(&self, who: u8) -> (OperationId, FencingToken) {
        let back = self.grants.len().checked_sub(1 + usize::from(who));
        back.map_or((operation(999), FencingToken(1)), |i| (self.grants[i].0, self.grants[i].1))
    }

    fn is_holder(&self, held: (OperationId, FencingToken)) -> bool {
        !matches!(self.phase, Phase::Nothing) && self.grants.last().is_some_and(|g| (g.0, g.1) == held)
    }

    /// The key has an answer now, and it is this operation's.
    fn is_answered(&self, operation_id: OperationId) -> bool {
        self.phase == Phase::Stored && self.grants.last().is_some_and(|g| g.0 == operation_id)
    }

    fn superseded_by(&self, held: (OperationId, FencingToken), answer: &Answer) -> Result<(), TestCaseError> {
        prop_assert!(self.is_answered(held.0), "the answer of another operation");
        prop_assert_eq!(Some(answer.clone()), self.answer.clone().map(Answer::SupersededBy));
        Ok(())
    }
}

fn check(events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut stored: Option<Record> = None;
    let mut oracle = Oracle::default();
    let mut fresh = 10;
    for event in events {
        fresh += 1;
        let run = |stored: &mut Option<Record>, command| match decide(stored.as_ref(), command) {
            Verdict::Keep(answer) => answer,
            Verdict::Put(put, answer) => {
                *stored = Some(put.record);
                answer
            }
        };
        match event {
            Event::Reserve { request, attempt: tried } => {
                let answer = run(&mut stored, reserve(request, u128::from(tried), fresh));
                let binds = !matches!(oracle.phase, Phase::Nothing | Phase::Over);
                let last = oracle.grants.last().copied();
                let same_attempt = last.is_some_and(|g| g.2 == attempt(u128::from(tried)));
                match (&answer, oracle.phase) {
                    (Answer::Mismatch, _) => prop_assert!(binds && request != oracle.request),
                    _ if binds && request != oracle.request => prop_assert!(false, "{answer:?} instead of mismatch"),
                    (Answer::Granted(g), Phase::Held) => {
                        prop_assert!(same_attempt);
                        prop_assert_eq!(Some((g.operation_id, g.token)), last.map(|l| (l.0, l.1)));
                    }
                    (Answer::Granted(g), Phase::Nothing | Phase::Over | Phase::Freed) => {
                        let renewed = oracle.phase == Phase::Freed;
                        if let (Some(last), true) = (last, oracle.phase != Phase::Nothing) {
                            prop_assert!(g.token > last.1, "the token grows");
                            prop_assert_eq!(renewed, g.operation_id == last.0);
                        }
                        oracle.grants.push((g.operation_id, g.token, attempt(u128::from(tried))));
                        oracle.phase = Phase::Held;
                        oracle.request = request;
                        oracle.answer = None;
                    }
                    (Answer::InProgress, Phase::Held) => prop_assert!(!same_attempt),
                    (Answer::Replay(r), Phase::Stored) => prop_assert_eq!(Some(r), oracle.answer.as_ref()),
                    (Answer::Stale(o, t, _), Phase::HeldTooLong | Phase::Doubt) => {
                        prop_assert_eq!(Some((*o, *t)), last.map(|l| (l.0, l.1)));
                    }
                    (Answer::Stale(..), Phase::Freed) => {
                        let ended = oracle.grants.iter().any(|g| g.2 == attempt(u128::from(tried)));
                        prop_assert!(ended, "only an attempt that was granted before has ended");
                    }
                    other => prop_assert!(false, "Reserve: {other:?}"),
                }
            }
            Event::Reclaim { who, attempt: tried } => {
                let seen = oracle.remembered(who);
                let attempt_id = attempt(fresh * 10 + u128::from(tried));
                let command = Command::Reclaim { operation_id: seen.0, token: seen.1, attempt_id, lease: lease() };
                let answer = run(&mut stored, command);
                match (&answer, oracle.phase) {
                    (Answer::Absent, Phase::Nothing | Phase::Over) => {}
                    (Answer::Replay(r), Phase::Stored) => {
                        prop_assert!(oracle.is_answered(seen.0), "the answer of another operation");
                        prop_assert_eq!(Some(r), oracle.answer.as_ref());
                    }
                    (Answer::Granted(g), Phase::HeldTooLong | Phase::Doubt | Phase::Freed) => {
                        prop_assert!(oracle.is_holder(seen) && g.must_ask);
                        prop_assert_eq!((g.operation_id, g.token), (seen.0, seen.1.next()));
                        oracle.grants.push((g.operation_id, g.token, attempt_id));
                        oracle.phase = Phase::Held;
                    }
                    (Answer::InProgress, phase) => {
                        prop_assert!(phase == Phase::Held || !oracle.is_holder(seen), "in progress for {phase:?}");
                        prop_assert!(!oracle.is_answered(seen.0));
                    }
                    other => prop_assert!(false, "Reclaim: {other:?}"),
                }
            }
            Event::Complete { who, answer: n } => {
                let held = oracle.remembered(who);
                let command = Command::Complete { operation_id: held.0, token: held.1, response: response(n) };
                let open = matches!(oracle.phase, Phase::Held | Phase::HeldTooLong | Phase::Doubt);
                match run(&mut stored, command) {
                    Answer::Completed if open => {
                        prop_assert!(oracle.is_holder(held));
                        oracle.phase = Phase::Stored;
                        oracle.answer = Some(response(n));
                    }
                    Answer::Completed => prop_assert!(oracle.is_holder(held) && oracle.answer.is_some()),
                    Answer::Superseded(_) => {
                        prop_assert!(!(oracle.is_holder(held) && open));
                        prop_assert!(!oracle.is_answered(held.0));
                    }
                    answer @ Answer::SupersededBy(_) => oracle.superseded_by(held, &answer)?,
                    other => prop_assert!(false, "Complete: {other:?}"),
                }
            }
            Event::Release { who } => {
                let held = oracle.remembered(who);
                let running = matches!(oracle.phase, Phase::Held | Phase::HeldTooLong);
                match run(&mut stored, Command::Release { operation_id: held.0, token: held.1 }) {
                    Answer::Released if running => {
                        prop_assert!(oracle.is_holder(held));
                        oracle.phase = Phase::Freed;
                    }
                    Answer::Released => prop_assert!(oracle.is_holder(held) && oracle.answer.is_none()),
                    Answer::Superseded(_) => {
                        prop_assert!(!(oracle.is_holder(held) && running));
                        prop_assert!(!oracle.is_answered(held.0));
                    }
                    answer @ Answer::SupersededBy(_) => oracle.superseded_by(held, &answer)?,
                    other => prop_assert!(false, "Release: {other:?}"),
                }
            }
            Event::Abandon { who } => {
                let held = oracle.remembered(who);
                let open = matches!(oracle.phase, Phase::Held | Phase::HeldTooLong | Phase::Doubt);
                match run(&mut stored, Command::Abandon { operation_id: held.0, token: held.1 }) {
                    Answer::Abandoned => {
                        prop_assert!(oracle.is_holder(held) && open);
                        oracle.phase = Phase::Doubt;
                    }
                    Answer::Superseded(_) => {
                        prop_assert!(!(oracle.is_holder(held) && open));
                        prop_assert!(!oracle.is_answered(held.0));
                    }
                    answer @ Answer::SupersededBy(_) => oracle.superseded_by(held, &answer)?,
                    other => prop_assert!(false, "Abandon: {other:?}"),
                }
            }
            Event::Renew { who } => {
                let held = oracle.remembered(who);
                let running = matches!(oracle.phase, Phase::Held | Phase::HeldTooLong);
                let command = Command::Renew { operation_id: held.0, token: held.1, lease: lease() };
                match run(&mut stored, command) {
                    Answer::Renewed => {
                        prop_assert!(oracle.is_holder(held) && running);
                        oracle.phase = Phase::Held;
                    }
                    Answer::Superseded(_) => {
                        prop_assert!(!(oracle.is_holder(held) && running));
                        prop_assert!(!oracle.is_answered(held.0));
                    }
                    answer @ Answer::SupersededBy(_) => oracle.superseded_by(held, &answer)?,
                    other => prop_assert!(false, "Renew: {other:?}"),
                }
            }
            Event::DeadlinePasses => {
                if let Some(record) = &mut stored {
                    record.deadline = if record.state == State::InDoubt { Deadline::Ahead } else { Deadline::Passed };
                }
                oracle.phase = match oracle.phase {
                    Phase::Held => Phase::HeldTooLong,
                    Phase::Stored | Phase::Freed => Phase::Over,
                    phase => phase,
                };
            }
            Event::Purge => {
                // Only a finished record whose retention is over is ever purged.
                if stored.as_ref().is_some_and(Record::is_over) {
                    stored = None;
                    oracle.phase = Phase::Nothing;
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_key_lives_by_the_rules_whatever_happens(events in proptest::collection::vec(event(), 1..60)) {
        check(events)?;
    }
}
