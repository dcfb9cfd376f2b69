//! Every schedule of three callers over the register, exhaustively.
//!
//! Each caller runs the script of a holder (reserve; reclaim and ask if stale; act; finish), as small steps over a
//! compare-and-swap register that calls the real `decide`. Between any two steps any other caller may run, a lease may run out,
//! and a holder may stop for good or wake late. The system of record refuses lower tokens, as the orders service does. Checked
//! in every state reached: one effect per operation, one stored answer that never changes, a token that never falls, and no
//! finish by a superseded holder.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod support;

use std::collections::HashSet;

use idem_core::{Answer, Command, Deadline, FencingToken, OperationId, Put, Record, State, Verdict, decide};
use support::*;

/// How a caller's own execution ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Ending {
    /// It acts and completes.
    Completes,
    /// It is refused without effect and releases.
    Releases,
    /// It acts, never learns it, and abandons.
    Abandons,
}

/// Where a caller is in its script.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum At {
    Start,
    Stale(OperationId, FencingToken),
    /// Holds the grant; must ask first when true.
    Holds(OperationId, FencingToken, bool),
    /// Has acted (or not), is about to finish.
    Acted(OperationId, FencingToken, Ending),
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    record: Option<Key>,
    callers: [At; 3],
    tries: [u8; 3],
    /// The system of record: highest token seen, and who acted.
    seen: FencingToken,
    effects: u8,
    /// The first answer stored, which may never change.
    answer: Option<u32>,
    lease_overs: u8,
}

/// A record that can be hashed.
#[derive(Clone, PartialEq, Eq)]
struct Key(Record);

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // Equality tells the rest apart.
        (self.0.token, self.0.attempt_id, self.0.attempts, self.0.state.name()).hash(state);
    }
}

impl World {
    fn new() -> Self {
        Self {
            record: None,
            callers: [At::Start, At::Start, At::Start],
            tries: [0; 3],
            seen: FencingToken(0),
            effects: 0,
            answer: None,
            lease_overs: 0,
        }
    }

    fn apply(&mut self, command: Command) -> Answer {
        let before = self.record.as_ref().map(|k| k.0.token);
        match decide(self.record.as_ref().map(|k| &k.0), command) {
            Verdict::Keep(answer) => answer,
            Verdict::Put(put, answer) => {
                let Put { record, .. } = *put;
                assert!(before.is_none_or(|before| record.token >= before), "a token never falls");
                if let State::Completed(response) = &record.state {
                    let status = u32::from(response.status());
                    assert!(self.answer.is_none_or(|first| first == status), "a stored answer never changes");
                    self.answer = Some(status);
                }
                self.record = Some(Key(record));
                answer
            }
        }
    }

    /// The system of record acts once per operation, for the highest token only.
    fn act(&mut self, token: FencingToken) -> bool {
        if token < self.seen {
            return false;
        }
        self.seen = token;
        self.effects = self.effects.max(1);
        true
    }

    /// Every world that one step of caller `i` can lead to.
    fn step(&self, i: usize, ending: Ending) -> Vec<World> {
        let mut next = self.clone();
        // Attempt ids are minted anew for each try.
        let tried = attempt((i as u128 + 1) * 100 + u128::from(self.tries[i]));
        match self.callers[i].clone() {
            At::Done => return vec![],
            At::Start => {
                next.tries[i] += 1;
                let Command::Reserve { fingerprint, lease, retention, trace_context, .. } = reserve(1, 0, 1) else {
                    unreachable!()
                };
                let command = Command::Reserve {
                    fingerprint,
                    attempt_id: tried,
                    operation_id: operation(1),
                    lease,
                    retention,
                    trace_context,
                };
                next.callers[i] = match next.apply(command) {
                    Answer::Granted(grant) => At::Holds(grant.operation_id, grant.token, grant.must_ask),
                    Answer::Stale(operation_id, token, _) => At::Stale(operation_id, token),
                    Answer::InProgress if next.tries[i] < 3 => At::Start,
                    Answer::InProgress | Answer::Replay(_) => At::Done,
                    other => panic!("Reserve answered {other:?}"),
                };
            }
            At::Stale(operation_id, token) => {
                let command = Command::Reclaim { operation_id, token, attempt_id: tried, lease: lease() };
                next.callers[i] = match next.apply(command) {
                    Answer::Granted(grant) => {
                        assert!(grant.must_ask, "a reclaimed grant obliges to ask");
                        At::Holds(grant.operation_id, grant.token, true)
                    }
                    Answer::InProgress | Answer::Replay(_) => At::Done,
                    other => panic!("Reclaim answered {other:?}"),
                };
            }
            At::Holds(operation_id, token, true) => {
                // Asking records the token first; a lower one is refused.
                if token < next.seen {
                    next.callers[i] = At::Done;
                } else {
                    next.seen = token;
                    next.callers[i] = if next.effects > 0 {
                        At::Acted(operation_id, token, Ending::Completes)
                    } else {
                        At::Holds(operation_id, token, false)
                    };
                }
            }
            At::Holds(operation_id, token, false) => {
                let refused = token < next.seen;
                let acted = ending != Ending::Releases && next.act(token);
                assert!(!(refused && acted), "an old token acts on nothing");
                next.seen = next.seen.max(token);
                next.callers[i] = if refused { At::Done } else { At::Acted(operation_id, token, ending) };
            }
            At::Acted(operation_id, token, ending) => {
                let is_current = self.record.as_ref().is_some_and(|k| k.0.is_current(operation_id, token));
                let answer = next.apply(match ending {
                    Ending::Completes => Command::Complete { operation_id, token, response: response(1) },
                    Ending::Releases => Command::Release { operation_id, token },
                    Ending::Abandons => Command::Abandon { operation_id, token },
                });
                if !is_current {
                    assert!(
                        matches!(answer, Answer::Superseded(_) | Answer::SupersededBy(_)),
                        "{answer:?} for a superseded holder"
                    );
                    assert!(next.record == self.record, "a superseded holder changes nothing");
                }
                next.callers[i] = At::Done;
            }
        }
        vec![next]
    }

    /// The lease of whoever holds the key runs out.
    fn lease_over(&self) -> Option<World> {
        let key = self.record.as_ref()?;
        let is_live = key.0.state == State::InProgress && key.0.deadline == Deadline::Ahead;
        (is_live && self.lease_overs < 3).then(|| {
            let mut next = self.clone();
            next.record = Some(Key(Record { deadline: Deadline::Passed, ..key.0.clone() }));
            next.lease_overs += 1;
            next
        })
    }

    fn check(&self) {
        assert!(self.effects <= 1, "one effect per operation");
        if let Some(Key(record)) = &self.record {
            if record.state == State::Released {
                // A release is only ever written by a current holder that saw no effect of its own.
                assert!(record.token >= FencingToken::FIRST);
            }
            if let State::Completed(_) = record.state {
                assert_eq!(self.effects, 1, "a stored answer tells the truth");
            }
        }
    }
}

fn explore(endings: [Ending; 3]) -> usize {
    let mut reached = HashSet::new();
    let mut open = vec![World::new()];
    while let Some(world) = open.pop() {
        world.check();
        for (i, ending) in endings.into_iter().enumerate() {
            open.extend(world.step(i, ending).into_iter().filter(|w| reached.insert(w.clone())));
        }
        open.extend(world.lease_over().into_iter().filter(|w| reached.insert(w.clone())));
    }
    reached.len()
}

#[test]
fn no_schedule_of_three_callers_acts_twice_or_lets_a_dead_holder_finish() {
    use Ending::*;
    let all = [Completes, Releases, Abandons];
    let mut states = 0;
    for a in all {
        for b in all {
            for c in all {
                states += explore([a, b, c]);
            }
        }
    }
    assert!(states > 10_000, "only {states} states: the exploration has shrunk");
}

/// Were a release to delete the row, three callers would be enough for a dead holder's Complete to be accepted.
#[test]
fn three_callers_release_never_lets_a_dead_holder_complete() {
    let mut world = World::new();
    let reserve_by = |world: &mut World, n: u128| {
        let Command::Reserve { fingerprint, lease, retention, trace_context, .. } = reserve(1, 0, 1) else {
            unreachable!()
        };
        world.apply(Command::Reserve {
            fingerprint,
            attempt_id: attempt(n),
            operation_id: operation(n),
            lease,
            retention,
            trace_context,
        })
    };
    // A reserves and stalls past its lease.
    let Answer::Granted(a) = reserve_by(&mut world, 1) else { panic!() };
    world = world.lease_over().unwrap();
    // B reclaims, fails without effect and releases.
    let Answer::Stale(operation_id, token, _) = reserve_by(&mut world, 2) else { panic!() };
    let Answer::Granted(b) =
        world.apply(Command::Reclaim { operation_id, token, attempt_id: attempt(3), lease: lease() })
    else {
        panic!()
    };
    let released = world.apply(Command::Release { operation_id: b.operation_id, token: b.token });
    assert_eq!(released, Answer::Released);
    // C reserves; A wakes.
    let Answer::Granted(c) = reserve_by(&mut world, 4) else { panic!() };
    let late = Command::Complete { operation_id: a.operation_id, token: a.token, response: response(9) };
    assert!(matches!(world.apply(late), Answer::Superseded(_)));
    assert_eq!(c.operation_id, a.operation_id, "the operation id is kept");
    assert!(c.token > b.token && b.token > a.token);
}
