// A backend in memory, made of the product's own decision function. (No inner doc: the file is also included by the example in the
// crate's documentation.) Its clock is tokio's, which a test moves by hand.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use idem_core::{
    Answer, AttemptId, Command, Deadline, FencingToken, Grant, LeaseDuration, OperationId, Record, Response, StateName,
    TraceContext, Until, Verdict, decide,
};
use idem_layer::ports::{Backend, BackendError, Finished, Held, KeyId, Reclaimed, Replay, ReserveCall, Reserved};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

/// Keys in memory. Cheap to clone; every clone is the same store.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    rows: Mutex<HashMap<KeyId, Row>>,
    log: Mutex<Vec<(Rpc, KeyId)>>,
    faults: Mutex<HashMap<Rpc, VecDeque<Fault>>>,
    is_down: Mutex<bool>,
    changes: watch::Sender<u64>,
    start: Instant,
}

#[derive(Clone)]
struct Row {
    record: Record,
    deadline: Option<Instant>,
}

/// A call of the backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rpc {
    Reserve,
    Reclaim,
    Complete,
    Release,
    Abandon,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the documentation's example needs none of them")]
pub enum Fault {
    /// It does not arrive, and that is known at once.
    Refused,
    /// It does not arrive, and its caller waits in vain.
    Hangs,
    /// It is carried out and its answer is lost.
    ReplyLost,
    /// It is carried out, and the answer takes this long.
    Slow(Duration),
}

#[allow(dead_code, reason = "the documentation's example needs few of them")]
impl Memory {
    pub fn new() -> Self {
        let shared = Shared {
            rows: Mutex::default(),
            log: Mutex::default(),
            faults: Mutex::default(),
            is_down: Mutex::new(false),
            changes: watch::Sender::new(0),
            start: Instant::now(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The next `times` calls of this kind meet this fault.
    pub fn fault(&self, rpc: Rpc, fault: Fault, times: usize) {
        self.shared.faults.lock().unwrap().entry(rpc).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// Nothing arrives until it is up again.
    pub fn set_down(&self, is_down: bool) {
        *self.shared.is_down.lock().unwrap() = is_down;
    }

    /// Which calls came, in order.
    pub fn calls(&self) -> Vec<Rpc> {
        self.shared.log.lock().unwrap().iter().map(|(rpc, _)| *rpc).collect()
    }

    pub fn count(&self, rpc: Rpc) -> usize {
        self.calls().into_iter().filter(|call| *call == rpc).count()
    }

    /// The record under a key, as it is judged now.
    pub fn record(&self, key: &KeyId) -> Option<Record> {
        self.shared.rows.lock().unwrap().get(key).map(Row::judged)
    }

    pub fn state(&self, key: &KeyId) -> Option<StateName> {
        self.record(key).map(|record| record.state.name())
    }

    /// Every key and where it is.
    pub fn states(&self) -> Vec<(KeyId, StateName)> {
        let rows = self.shared.rows.lock().unwrap();
        rows.iter().map(|(key, row)| (key.clone(), row.judged().state.name())).collect()
    }

    /// Resolves when the key is in this state.
    pub async fn reaches(&self, key: &KeyId, state: StateName) {
        let mut changes = self.shared.changes.subscribe();
        while self.state(key) != Some(state) {
            changes.changed().await.unwrap();
        }
    }

    /// The time of day at the store.
    pub fn wall(&self, at: Instant) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000) + (at - self.shared.start)
    }

    /// Carries out a command, as somebody else would.
    pub fn command(&self, key: &KeyId, command: Command) -> Answer {
        let mut rows = self.shared.rows.lock().unwrap();
        match decide(rows.get(key).map(Row::judged).as_ref(), command) {
            Verdict::Keep(answer) => answer,
            Verdict::Put(put, answer) => {
                let deadline = match put.until {
                    Until::Lease(lease) => Some(Instant::now() + lease.get()),
                    Until::Retention(retention) => Some(Instant::now() + retention.get()),
                    Until::Never => None,
                };
                rows.insert(key.clone(), Row { record: put.record, deadline });
                self.shared.changes.send_modify(|count| *count += 1);
                answer
            }
        }
    }

    /// Meets the faults that were ordered, on the way there and back.
    async fn carry<T>(
        &self,
        (rpc, key): (Rpc, &KeyId),
        deadline: Instant,
        act: impl AsyncFnOnce() -> T,
    ) -> Result<T, BackendError> {
        // The log also has calls that did not arrive: they were made.
        self.shared.log.lock().unwrap().push((rpc, key.clone()));
        let fault = self.shared.faults.lock().unwrap().get_mut(&rpc).and_then(VecDeque::pop_front);
        let is_down = *self.shared.is_down.lock().unwrap();
        match fault {
            _ if is_down => return Err(BackendError("the store is down".into())),
            Some(Fault::Refused) => return Err(BackendError("refused".into())),
            Some(Fault::Hangs) => {
                sleep_until(deadline).await;
                return Err(BackendError("it hangs".into()));
            }
            Some(Fault::ReplyLost) => {
                act().await;
                return Err(BackendError("the reply was lost".into()));
            }
            Some(Fault::Slow(by)) => {
                let answer = act().await;
                let late = Instant::now() + by;
                sleep_until(late.min(deadline)).await;
                return if late < deadline { Ok(answer) } else { Err(BackendError("too late".into())) };
            }
            None => {}
        }
        timeout_at(deadline, act()).await.map_err(|elapsed| BackendError(elapsed.into()))
    }

    fn held(&self, key: &KeyId, grant: Grant) -> Held {
        let ends = self.shared.rows.lock().unwrap()[key].deadline.unwrap();
        Held { grant, lease_expires_at: self.wall(ends) }
    }

    fn replay(&self, key: &KeyId, response: Response) -> Replay {
        let rows = self.shared.rows.lock().unwrap();
        let row = &rows[key];
        Replay {
            response,
            expires_at: self.wall(row.deadline.unwrap()),
            expires_in: row.deadline.unwrap().saturating_duration_since(Instant::now()),
            trace_context: row.record.trace_context.clone(),
        }
    }

    fn finish(&self, key: &KeyId, command: Command) -> Finished {
        match self.command(key, command) {
            Answer::Completed => {
                Finished::Done(Some(self.wall(self.shared.rows.lock().unwrap()[key].deadline.unwrap())))
            }
            Answer::Superseded(state) => Finished::Superseded(state, None),
            Answer::SupersededBy(response) => {
                Finished::Superseded(Some(StateName::Completed), Some(Box::new(self.replay(key, response))))
            }
            Answer::Released | Answer::Abandoned => Finished::Done(None),
            other => panic!("no answer to a closing call: {other:?}"),
        }
    }

    fn reserve_now(&self, call: &ReserveCall) -> Reserved {
        let command = Command::Reserve {
            fingerprint: call.fingerprint,
            attempt_id: call.attempt_id,
            operation_id: OperationId(uuid::Uuid::new_v4()),
            lease: call.lease,
            retention: call.retention,
            trace_context: call.trace_context.clone(),
        };
        match self.command(&call.key, command) {
            Answer::Granted(grant) => Reserved::Granted(self.held(&call.key, grant)),
            Answer::Replay(response) => Reserved::Replay(self.replay(&call.key, response)),
            Answer::InProgress => Reserved::InProgress,
            Answer::Mismatch => Reserved::Mismatch,
            Answer::Stale(operation_id, token, _) => {
                let trace_context = self.record(&call.key).map(|r| r.trace_context).unwrap_or_default();
                Reserved::Stale { operation_id, token, trace_context }
            }
            other => panic!("no answer to Reserve: {other:?}"),
        }
    }
}

impl Row {
    fn judged(&self) -> Record {
        let is_passed = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        Record { deadline: if is_passed { Deadline::Passed } else { Deadline::Ahead }, ..self.record.clone() }
    }
}

#[async_trait]
impl Backend for Memory {
    async fn reserve(&self, call: ReserveCall, deadline: Instant) -> Result<Reserved, BackendError> {
        let act = async || {
            let mut changes = self.shared.changes.subscribe();
            let give_up = Instant::now() + call.wait;
            loop {
                let reserved = self.reserve_now(&call);
                if reserved != Reserved::InProgress || timeout_at(give_up, changes.changed()).await.is_err() {
                    return reserved;
                }
            }
        };
        self.carry((Rpc::Reserve, &call.key), deadline, act).await
    }

    async fn reclaim(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        attempt_id: AttemptId,
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Reclaimed, BackendError> {
        let act = async || match self.command(key, Command::Reclaim { operation_id, token, attempt_id, lease }) {
            Answer::Granted(grant) => Reclaimed::Granted(self.held(key, grant)),
            Answer::Replay(response) => Reclaimed::Replay(self.replay(key, response)),
            Answer::InProgress | Answer::Absent => Reclaimed::InProgress,
            other => panic!("no answer to Reclaim: {other:?}"),
        };
        self.carry((Rpc::Reclaim, key), deadline, act).await
    }

    async fn complete(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        response: Response,
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        let act = async || self.finish(key, Command::Complete { operation_id, token, response });
        self.carry((Rpc::Complete, key), deadline, act).await
    }

    async fn release(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        let act = async || self.finish(key, Command::Release { operation_id, token });
        self.carry((Rpc::Release, key), deadline, act).await
    }

    async fn abandon(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        let act = async || self.finish(key, Command::Abandon { operation_id, token });
        self.carry((Rpc::Abandon, key), deadline, act).await
    }
}

/// A trace context that cannot be wrong.
#[allow(dead_code, reason = "the documentation's example needs none")]
pub fn trace_context(text: &str) -> TraceContext {
    TraceContext::new(text).unwrap()
}
