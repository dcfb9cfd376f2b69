//! Carries commands out: guess what stands under the key, decide, swap. A lost swap brings the truth, and the next round.
//!
//! ```text
//!   guess ──► decide ──► swap ──► won: answer
//!     ▲                   │
//!     └──── the truth ◄── lost
//! ```
//!
//! A first Reserve guesses that the key is absent, a holder's command that the key is as this process granted it: one round
//! trip each. A guess is only ever swapped against, never answered from.

mod each;
mod grants;
mod replays;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use chassis::deadline::Deadline;
use database::Clock;
use fault_point::fault_point;
use futures::FutureExt as _;
use idem_core::{Answer, Command, IdempotencyKey, Put, Record, State, Verdict, decide};
use tokio::time::{Instant, timeout_at};

pub use self::each::{Begun, Open};
use self::grants::Grants;
use self::replays::{Moment, Replays};
use self::waiting::Waiting;
use crate::store::{
    Audit, AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, ScopePattern, Snapshot, Store, StoreError, Swap,
    SwapRequest, Version,
};

/// Every lost round means that somebody else has changed the key meanwhile; so many in a row do not happen by chance.
const ROUNDS: u32 = 16;
/// How long a call waits for the store. The gateway promises a refusal within two seconds, its own part included.
const PATIENCE: Duration = Duration::from_millis(1400);
/// A blip (one connection lost, perhaps with the reply to a commit) is repeated here, an outage is the caller's to repeat.
const BLIPS: u32 = 2;
const BLIP_PAUSE: Duration = Duration::from_millis(25);
/// Another replica may finish a key without a ring here: waiters look by themselves, at these intervals.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(250);

/// Carries commands out over a [`Store`].
pub struct Engine {
    store: Arc<dyn Store>,
    grants: Grants,
    replays: Replays,
    waiting: Waiting,
}

/// What a command came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// What the caller hears.
    pub answer: Answer,
    /// What stands under the key: the times of the answer come from here.
    pub snapshot: Snapshot,
}

/// Why a command was not carried out, or may not have been. Repeating it is safe, except for Resolve.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The caller's deadline was over before any work began.
    #[error("the deadline was over before the work began")]
    DeadlineOver,
    /// The store did not answer in time.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key changed at every round.
    #[error("the key changed in each of {ROUNDS} rounds")]
    Contended,
}

/// What a round starts from.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it is moved, not copied")]
enum Seen {
    Guess(Version, Option<Arc<Snapshot>>),
    Truth(Snapshot),
}

// === impl Engine ===

impl Engine {
    /// An engine over `store`, which keeps about `replay_bytes` of stored answers in memory; `clock` is the store's.
    pub fn new(store: Arc<dyn Store>, clock: Clock, replay_bytes: u64) -> Self {
        Self { store, grants: Grants::new(), replays: Replays::new(replay_bytes, clock), waiting: Waiting::new() }
    }

    /// Reserves a key, waiting up to `wait` while somebody else holds it. `command` is a Reserve.
    pub async fn reserve(
        &self,
        key: &KeyId,
        command: Command,
        wait: Duration,
        deadline: Option<Deadline>,
    ) -> Result<Outcome, EngineError> {
        let outcome = self.carry_out(key, command.clone(), deadline).await?;
        if outcome.answer != Answer::InProgress || wait.is_zero() {
            return Ok(outcome);
        }
        let until = Instant::now() + wait;
        // The answer must still travel when the deadline comes.
        let until = deadline.map_or(until, |d| until.min(Instant::now() + most_of(d.remaining())));
        self.wait_for_holder(key, command, until, deadline).await
    }

    /// Carries out any command but Resolve.
    pub async fn carry_out(
        &self,
        key: &KeyId,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Outcome, EngineError> {
        let limit = limit(deadline)?;
        if let Some(outcome) = self.remembered(key, &command) {
            return Ok(outcome);
        }
        let start = self.guess(key, &command);
        self.carry_on(key, &command, start, limit).await
    }

    /// Decides and swaps, and once more when the store blinks.
    async fn carry_on(
        &self,
        key: &KeyId,
        command: &Command,
        mut start: Option<Seen>,
        limit: Instant,
    ) -> Result<Outcome, EngineError> {
        for _ in 0..BLIPS {
            match self.rounds(key, command, None, start, limit).await {
                Err(EngineError::Store(StoreError::Unavailable(cause))) if Instant::now() + BLIP_PAUSE < limit => {
                    // Perhaps only the reply is lost: every command meets its own commit as its own.
                    tracing::debug!(%cause, "the store failed, asking once more");
                    fault_point!("idem blip: pause");
                    tokio::time::sleep(BLIP_PAUSE).await;
                    start = None;
                }
                settled => return settled,
            }
        }
        self.rounds(key, command, None, None, limit).await
    }

    /// Carries out a Resolve; `audit` is written with it. Never repeated here: it would be audited twice.
    pub async fn resolve(
        &self,
        key: &KeyId,
        command: Command,
        audit: Audit,
        deadline: Option<Deadline>,
    ) -> Result<Outcome, EngineError> {
        self.rounds(key, &command, Some(audit), None, limit(deadline)?).await
    }

    /// What stands under a key now.
    pub async fn get(&self, key: &KeyId, deadline: Option<Deadline>) -> Result<Snapshot, EngineError> {
        self.load(key, limit(deadline)?).await
    }

    /// A page of records by how long they have been as they are, longest first.
    pub async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        page_size: u32,
        deadline: Option<Deadline>,
    ) -> Result<Vec<Entry>, EngineError> {
        within(limit(deadline)?, self.store.list(filter, after, page_size)).await
    }

    /// Counts records by state.
    pub async fn count(&self, scopes: &[ScopePattern], deadline: Option<Deadline>) -> Result<Counts, EngineError> {
        within(limit(deadline)?, self.store.count(scopes)).await
    }

    /// Lines of the audit table, latest first.
    pub async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        page_size: u32,
        deadline: Option<Deadline>,
    ) -> Result<Vec<AuditRow>, EngineError> {
        within(limit(deadline)?, self.store.audits(scopes, key, before, page_size)).await
    }

    /// Counts the keys of each scope that are in progress or in doubt.
    pub async fn count_live(
        &self,
        scopes: &[ScopePattern],
        deadline: Option<Deadline>,
    ) -> Result<Vec<LiveKeys>, EngineError> {
        within(limit(deadline)?, self.store.count_live(scopes)).await
    }

    /// Hands out keys whose holder is gone, and hides them for `hide`.
    pub async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        page_size: u32,
        hide: Duration,
        deadline: Option<Deadline>,
    ) -> Result<Vec<Entry>, EngineError> {
        within(limit(deadline)?, self.store.hand_out_stale(scopes, page_size, hide)).await
    }

    /// Looks until the holder is done, a grant is won, or `until`. Writes nothing while the holder lives.
    async fn wait_for_holder(
        &self,
        key: &KeyId,
        command: Command,
        until: Instant,
        deadline: Option<Deadline>,
    ) -> Result<Outcome, EngineError> {
        let place = self.waiting.join(key);
        let mut pause = LOOK_FIRST;
        loop {
            // Listening starts before looking, so that no ring falls between the two.
            let ring = place.ring();
            let outcome = match self.remembered(key, &command) {
                Some(outcome) => outcome,
                None => self.rounds(key, &command, None, None, limit(deadline)?).await?,
            };
            if outcome.answer != Answer::InProgress || Instant::now() >= until {
                return Ok(outcome);
            }
            let next_look = until.min(Instant::now() + pause.min(lease_left(&outcome.snapshot)));
            fault_point!("idem wait: pause");
            let _ = timeout_at(next_look, ring).await;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    /// Decides and swaps until a swap is won or nothing is to be written.
    async fn rounds(
        &self,
        key: &KeyId,
        command: &Command,
        audit: Option<Audit>,
        start: Option<Seen>,
        limit: Instant,
    ) -> Result<Outcome, EngineError> {
        let mut start = start;
        for _ in 0..ROUNDS {
            let seen = match start.take() {
                Some(seen) => seen,
                None => Seen::Truth(self.load(key, limit).await?),
            };
            match (decide(seen.record(), command.clone()), seen) {
                (Verdict::Keep(answer), Seen::Truth(snapshot)) => return Ok(Outcome { answer, snapshot }),
                (Verdict::Keep(_), Seen::Guess(..)) => {}
                (Verdict::Put(put, answer), seen) => {
                    match self.swap(key, seen.version(), *put, audit.clone(), limit).await? {
                        Swap::Won(snapshot) => return Ok(Outcome { answer, snapshot }),
                        Swap::Lost(truth) => start = Some(Seen::Truth(truth)),
                    }
                }
            }
        }
        Err(EngineError::Contended)
    }

    async fn load(&self, key: &KeyId, limit: Instant) -> Result<Snapshot, EngineError> {
        let asked = self.replays.moment();
        fault_point!("idem load: ask" => Err(StoreError::at_fault_point().into()));
        let snapshots = within(limit, self.store.load(std::slice::from_ref(key))).await?;
        fault_point!("idem load: answered" => Err(StoreError::at_fault_point().into()));
        let snapshot = only(snapshots)?;
        self.replays.keep(key, &snapshot, asked);
        Ok(snapshot)
    }

    async fn swap(
        &self,
        key: &KeyId,
        seen: Version,
        put: Put,
        audit: Option<Audit>,
        limit: Instant,
    ) -> Result<Swap, EngineError> {
        let write = SwapRequest { key: key.clone(), seen, put, audit, until: Some(limit) };
        only(self.swap_all(vec![write], limit).await?)
    }

    /// Carries out writes in one go, and learns from what became of them.
    async fn swap_all(&self, writes: Vec<SwapRequest>, limit: Instant) -> Result<Vec<Swap>, EngineError> {
        let asked = self.replays.moment();
        let keys: Vec<KeyId> = writes.iter().map(|write| write.key.clone()).collect();
        fault_point!("idem swap: ask" => Err(StoreError::at_fault_point().into()));
        let swaps = within(limit, self.store.swap(writes)).await?;
        fault_point!("idem swap: answered" => Err(StoreError::at_fault_point().into()));
        keys.iter().zip(&swaps).for_each(|(key, swap)| self.learn(key, swap, asked));
        Ok(swaps)
    }

    fn learn(&self, key: &KeyId, swap: &Swap, asked: Moment) {
        match swap {
            Swap::Won(snapshot) => {
                self.replays.keep(key, snapshot, asked);
                if snapshot.record.as_ref().is_some_and(|r| r.state == State::InProgress) {
                    self.grants.remember(key, snapshot);
                } else {
                    self.grants.forget(key);
                    self.waiting.ring(key);
                }
            }
            Swap::Lost(truth) => {
                self.replays.keep(key, truth, asked);
                self.grants.forget(key);
            }
        }
    }

    /// The answer of a Reserve whose key is known to be completed, without asking the store.
    fn remembered(&self, key: &KeyId, command: &Command) -> Option<Outcome> {
        let Command::Reserve { .. } = command else { return None };
        let snapshot = self.replays.find(key)?;
        match decide(snapshot.record.as_ref(), command.clone()) {
            Verdict::Keep(answer) => Some(Outcome { answer, snapshot }),
            Verdict::Put(..) => None,
        }
    }

    fn guess(&self, key: &KeyId, command: &Command) -> Option<Seen> {
        match command {
            Command::Reserve { .. } => Some(Seen::Guess(Version::Absent, None)),
            Command::Complete { .. } | Command::Release { .. } | Command::Abandon { .. } | Command::Renew { .. } => {
                self.grants.recall(key).map(|granted| Seen::Guess(granted.version, Some(granted)))
            }
            Command::Reclaim { .. } | Command::Resolve { .. } => None,
        }
    }
}

// === impl Seen ===

impl Seen {
    fn version(&self) -> Version {
        match self {
            Seen::Guess(version, _) => *version,
            Seen::Truth(snapshot) => snapshot.version,
        }
    }

    fn record(&self) -> Option<&Record> {
        match self {
            Seen::Guess(_, granted) => granted.as_ref().and_then(|granted| granted.record.as_ref()),
            Seen::Truth(snapshot) => snapshot.record.as_ref(),
        }
    }
}

// === time ===

/// Until when the store may take; a call past its deadline starts no work.
fn limit(deadline: Option<Deadline>) -> Result<Instant, EngineError> {
    let patience = match deadline {
        Some(deadline) if deadline.is_over() => return Err(EngineError::DeadlineOver),
        Some(deadline) => PATIENCE.min(most_of(deadline.remaining())),
        None => PATIENCE,
    };
    Ok(Instant::now() + patience)
}

/// Leaves a tenth for the answer to travel, so that it comes before the caller has given up.
fn most_of(remaining: Duration) -> Duration {
    remaining - remaining / 10
}

fn lease_left(snapshot: &Snapshot) -> Duration {
    let lease_until = snapshot.times.lease_until.unwrap_or(snapshot.now);
    // Never zero: the store may round differently, and a waiter must not spin.
    lease_until.duration_since(snapshot.now).unwrap_or_default().max(Duration::from_millis(1))
}

fn within<T>(
    limit: Instant,
    work: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, EngineError>> {
    timeout_at(limit, work).map(|answer| match answer {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(EngineError::TimedOut),
    })
}

fn only<T>(mut answers: Vec<T>) -> Result<T, EngineError> {
    match (answers.pop(), answers.is_empty()) {
        (Some(answer), true) => Ok(answer),
        _ => Err(StoreError::Broken("the store did not give one answer to one question".into()).into()),
    }
}
