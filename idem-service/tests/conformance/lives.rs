//! Random lives of two keys in the hands of three callers, on a store and in a pure interpretation of the register side by side.
//!
//! Callers decide over what they saw last, which may be long outdated; the store and the interpretation must agree on who wins, on
//! what everybody hears, and on every judgement of time. Durations and moves are whole minutes, so that the seconds which pass
//! meanwhile change no judgement.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use idem_core::{
    AttemptId, Command, Deadline, FencingToken, OperationId, Put, Record, State, StateName, Verdict, decide,
};
use idem_service::store::{KeyId, ScopePattern, Snapshot, Swap, SwapRequest, Version};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use tokio::runtime::Runtime;

use super::bench::*;

const MINUTE: Duration = Duration::from_secs(60);
const CALLERS: usize = 3;
const KEYS: usize = 2;

#[derive(Clone, Debug)]
enum Event {
    Look {
        caller: usize,
        key: usize,
    },
    Act {
        caller: usize,
        key: usize,
        act: Act,
    },
    /// Two callers in one batch.
    ActTogether {
        callers: [usize; 2],
        keys: [usize; 2],
        acts: [Act; 2],
    },
    Pass {
        minutes: u32,
    },
    Purge,
    HandOut {
        minutes: u32,
    },
}

#[derive(Clone, Debug)]
enum Act {
    Reserve { attempt: u128, lease: u32, retention: u32 },
    Reclaim { attempt: u128, lease: u32 },
    Complete,
    Release,
    Abandon,
    Renew { lease: u32 },
    Resolve { outcome: u8 },
}

/// The register, without a store: times are minutes since the beginning.
#[derive(Default)]
struct Register {
    now: u32,
    rows: [Option<Row>; KEYS],
}

#[derive(Clone)]
struct Row {
    record: Record,
    number: i64,
    created: u32,
    updated: u32,
    until: Option<u32>,
    hidden_until: u32,
}

/// What a caller saw last; at first, that there is nothing.
#[derive(Clone)]
struct Seen {
    version: Version,
    record: Option<Record>,
}

/// One life on one store.
struct Life<'b> {
    bench: &'b Bench,
    scope: String,
    began: SystemTime,
    register: Register,
    callers: [[Seen; KEYS]; CALLERS],
    /// Operation ids that Reserve minted.
    minted: u128,
}

/// Holds `bench` to the interpretation, over `cases` random lives.
pub fn follows_decide(cases: u32, bench: impl Future<Output = Bench>) {
    let runtime = Runtime::new().unwrap();
    let bench = runtime.block_on(bench);
    let lives = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&proptest::collection::vec(event(), 1..40), |events| {
        let scope = format!("life/{}", lives.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(live(&bench, scope, events))
    });
    runtime.block_on(async move { drop(bench) });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

fn event() -> impl Strategy<Value = Event> {
    let act = || {
        prop_oneof![
            5 => (1..9u128, 1..4u32, 4..9u32)
                .prop_map(|(attempt, lease, retention)| Act::Reserve { attempt, lease, retention }),
            3 => (1..9u128, 1..4u32).prop_map(|(attempt, lease)| Act::Reclaim { attempt, lease }),
            3 => Just(Act::Complete),
            2 => Just(Act::Release),
            2 => Just(Act::Abandon),
            1 => (1..4u32).prop_map(|lease| Act::Renew { lease }),
            1 => (0..3u8).prop_map(|outcome| Act::Resolve { outcome }),
        ]
    };
    prop_oneof![
        3 => (0..CALLERS, 0..KEYS).prop_map(|(caller, key)| Event::Look { caller, key }),
        6 => (0..CALLERS, 0..KEYS, act()).prop_map(|(caller, key, act)| Event::Act { caller, key, act }),
        2 => ([0..CALLERS, 0..CALLERS], [0..KEYS, 0..KEYS], [act(), act()])
            .prop_map(|(callers, keys, acts)| Event::ActTogether { callers, keys, acts }),
        2 => (1..9u32).prop_map(|minutes| Event::Pass { minutes }),
        1 => Just(Event::Purge),
        1 => (1..5u32).prop_map(|minutes| Event::HandOut { minutes }),
    ]
}

async fn live(bench: &Bench, scope: String, events: Vec<Event>) -> TestCaseResult {
    let nothing = Seen { version: Version::Absent, record: None };
    let callers = std::array::from_fn(|_| std::array::from_fn(|_| nothing.clone()));
    let began = bench.load(&key_in(&scope, "0")).await.now;
    let mut life = Life { bench, scope, began, register: Register::default(), callers, minted: 0 };
    for event in events {
        life.happen(event).await?;
    }
    for key in 0..KEYS {
        life.look(0, key).await?;
    }
    Ok(())
}

// === impl Life ===

impl Life<'_> {
    async fn happen(&mut self, event: Event) -> TestCaseResult {
        match event {
            Event::Look { caller, key } => self.look(caller, key).await,
            Event::Act { caller, key, act } => self.act(&[(caller, key, act)]).await,
            Event::ActTogether { callers: [a, b], keys: [k, l], acts: [act, other] } => {
                self.act(&[(a, k, act), (b, l, other)]).await
            }
            Event::Pass { minutes } => {
                self.bench.hand.advance(MINUTE * minutes);
                self.register.now += minutes;
                Ok(())
            }
            Event::Purge => {
                self.bench.store.purge(1000).await.unwrap();
                self.register.purge();
                Ok(())
            }
            Event::HandOut { minutes } => self.hand_out(minutes).await,
        }
    }

    fn key(&self, key: usize) -> KeyId {
        key_in(&self.scope, &key.to_string())
    }

    async fn look(&mut self, caller: usize, key: usize) -> TestCaseResult {
        let snapshot = self.bench.load(&self.key(key)).await;
        self.agree(key, &snapshot)?;
        self.remember(caller, key, snapshot);
        Ok(())
    }

    /// The acts of a batch. Each caller decides over what it saw before the batch.
    async fn act(&mut self, acts: &[(usize, usize, Act)]) -> TestCaseResult {
        let mut writes = Vec::new();
        for (caller, key, act) in acts {
            let seen = self.callers[*caller][*key].clone();
            let command = self.command(&seen, act);
            if let Verdict::Put(put, _) = decide(seen.record.as_ref(), command) {
                writes.push((*caller, *key, seen.version, *put));
            }
        }
        let requests = writes.iter().map(|(_, key, seen, put)| SwapRequest {
            key: self.key(*key),
            seen: *seen,
            put: put.clone(),
            audit: None,
            until: None,
        });
        let answers = self.bench.store.swap(requests.collect()).await.unwrap();
        prop_assert_eq!(answers.len(), writes.len());
        // As if one after another; a repeat of a key hears what the first has left.
        for ((caller, key, seen, put), answer) in writes.into_iter().zip(answers) {
            let wins = self.register.swap(key, seen, put);
            match answer {
                Swap::Won(snapshot) => {
                    prop_assert!(wins, "the store let a write win: {:?}", snapshot);
                    self.agree(key, &snapshot)?;
                    self.remember(caller, key, snapshot);
                }
                Swap::Lost(truth) => {
                    prop_assert!(!wins, "the store let a write lose: {:?}", truth);
                    self.agree(key, &truth)?;
                    self.remember(caller, key, truth);
                }
            }
        }
        Ok(())
    }

    async fn hand_out(&mut self, minutes: u32) -> TestCaseResult {
        let scopes = [ScopePattern::Exact(self.scope.clone())];
        let entries = self.bench.store.hand_out_stale(&scopes, 10, MINUTE * minutes).await.unwrap();
        let mut handed_out: Vec<usize> = entries.iter().map(|entry| entry.key.key.as_str().parse().unwrap()).collect();
        handed_out.sort();
        prop_assert_eq!(handed_out, self.register.hand_out(minutes));
        Ok(())
    }

    fn remember(&mut self, caller: usize, key: usize, snapshot: Snapshot) {
        self.callers[caller][key] = Seen { version: snapshot.version, record: snapshot.record };
    }

    fn command(&mut self, seen: &Seen, act: &Act) -> Command {
        let held = seen.record.as_ref().map_or((operation(999), FencingToken(1)), |r| (r.operation_id, r.token));
        let (operation_id, token): (OperationId, FencingToken) = held;
        let attempt_id = |n: u128| -> AttemptId { attempt(n) };
        match *act {
            Act::Reserve { attempt, lease, retention } => {
                self.minted += 1;
                match reserving_for(self.minted, MINUTE * lease, MINUTE * retention) {
                    Command::Reserve { fingerprint, operation_id, lease, retention, trace_context, .. } => {
                        let attempt_id = attempt_id(attempt);
                        Command::Reserve { fingerprint, attempt_id, operation_id, lease, retention, trace_context }
                    }
                    other => other,
                }
            }
            Act::Reclaim { attempt, lease: minutes } => Command::Reclaim {
                operation_id,
                token,
                attempt_id: attempt_id(attempt),
                lease: lease(MINUTE * minutes),
            },
            Act::Complete => Command::Complete { operation_id, token, response: answer(format!("answer {token}")) },
            Act::Release => Command::Release { operation_id, token },
            Act::Abandon => Command::Abandon { operation_id, token },
            Act::Renew { lease: minutes } => Command::Renew { operation_id, token, lease: lease(MINUTE * minutes) },
            Act::Resolve { outcome } => {
                let outcomes = [State::Completed(answer("by hand")), State::Released, State::InDoubt];
                Command::Resolve { seen: Some(token), outcome: outcomes[usize::from(outcome)].clone() }
            }
        }
    }

    /// The store's snapshot says what the register says.
    fn agree(&self, key: usize, snapshot: &Snapshot) -> TestCaseResult {
        let Some(row) = &self.register.rows[key] else {
            prop_assert_eq!(&snapshot.record, &None);
            prop_assert_eq!(snapshot.version, Version::Absent);
            return Ok(());
        };
        prop_assert_eq!(snapshot.record.as_ref(), Some(&row.judged(self.register.now)));
        prop_assert_eq!(snapshot.version, row.version());
        let minute = |at: SystemTime| at.duration_since(self.began).unwrap().as_secs() / 60;
        let times = &snapshot.times;
        prop_assert_eq!(minute(times.created_at), u64::from(row.created));
        prop_assert_eq!(minute(times.updated_at), u64::from(row.updated));
        prop_assert_eq!(times.lease_until.or(times.expires_at).map(minute), row.until.map(u64::from));
        prop_assert_eq!(times.completed_at.is_some(), row.record.state.name() == StateName::Completed);
        Ok(())
    }
}

// === impl Register ===

impl Register {
    fn swap(&mut self, key: usize, seen: Version, put: Put) -> bool {
        let now = self.now;
        let row = &mut self.rows[key];
        let version = row.as_ref().map_or(Version::Absent, Row::version);
        let is_over = row.as_ref().is_none_or(|row| row.judged(now).is_over());
        if version != seen || put.is_new != is_over {
            return false;
        }
        let until = match put.until {
            idem_core::Until::Lease(lease) => Some(lease.get()),
            idem_core::Until::Retention(retention) => Some(retention.get()),
            idem_core::Until::Never => None,
        };
        let before = row.take();
        *row = Some(Row {
            number: before.as_ref().map_or(0, |row| row.number) + 1,
            created: before.as_ref().filter(|_| !put.is_new).map_or(now, |row| row.created),
            updated: now,
            until: until.map(|until| now + (until.as_secs() / 60) as u32),
            hidden_until: before.filter(|_| !put.is_new).map_or(0, |row| row.hidden_until),
            record: put.record,
        });
        true
    }

    fn purge(&mut self) {
        for row in &mut self.rows {
            row.take_if(|row| row.judged(self.now).is_over());
        }
    }

    fn hand_out(&mut self, minutes: u32) -> Vec<usize> {
        let now = self.now;
        let is_waiting = |row: &Row| {
            let record = row.judged(now);
            (record.is_lease_over() || record.state == State::InDoubt) && row.hidden_until <= now
        };
        let mut handed_out = Vec::new();
        for (key, row) in self.rows.iter_mut().enumerate() {
            if let Some(row) = row.as_mut().filter(|row| is_waiting(row)) {
                row.hidden_until = now + minutes;
                handed_out.push(key);
            }
        }
        handed_out
    }
}

// === impl Row ===

impl Row {
    fn version(&self) -> Version {
        Version::At { operation_id: self.record.operation_id, number: self.number }
    }

    fn judged(&self, now: u32) -> Record {
        let deadline = if self.until.is_some_and(|until| until <= now) { Deadline::Passed } else { Deadline::Ahead };
        Record { deadline, ..self.record.clone() }
    }
}
