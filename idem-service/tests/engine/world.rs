//! An engine over a store whose clock stands still until it is moved, and short words for commands.

use std::sync::Arc;
use std::time::Duration;

use chassis::deadline::Deadline;
use database::{Clock, Hand};
use futures::future::join_all;
use idem_core::{
    Answer, AttemptId, Command, FencingToken, Fingerprint, Grant, IdempotencyKey, LeaseDuration, OperationId, Response,
    RetentionPeriod, Scope, StaleReason, State, TraceContext,
};
use idem_service::engine::{Begun, Engine, EngineError, Outcome};
use idem_service::store::{Audit, KeyId};
use uuid::Uuid;

use crate::double::Double;

pub const LEASE: Duration = Duration::from_secs(60);
pub const RETENTION: Duration = Duration::from_secs(24 * 3600);

pub struct World {
    pub engine: Arc<Engine>,
    pub store: Arc<Double>,
    pub hand: Hand,
    clock: Clock,
}

impl World {
    /// A world whose engine asks the store about everything.
    pub fn new() -> Self {
        Self::with_replay_cache(0)
    }

    pub fn with_replay_cache(bytes: u64) -> Self {
        let (store, clock, hand) = Double::new();
        Self { engine: Arc::new(Engine::new(store.clone(), clock.clone(), bytes)), store, hand, clock }
    }

    /// Another replica over the same store.
    pub fn replica(&self) -> Self {
        let engine = Arc::new(Engine::new(self.store.clone(), self.clock.clone(), 0));
        Self { engine, store: self.store.clone(), hand: self.hand.clone(), clock: self.clock.clone() }
    }

    pub async fn reserve_as(&self, name: &str, attempt_id: AttemptId) -> Outcome {
        self.carry_out(name, reserve(attempt_id, "asked")).await
    }

    pub async fn reserve(&self, name: &str) -> Outcome {
        self.reserve_as(name, attempt()).await
    }

    pub async fn reserve_other(&self, name: &str) -> Outcome {
        self.carry_out(name, reserve(attempt(), "something else")).await
    }

    pub async fn reserve_waiting(&self, name: &str, wait: Duration) -> Outcome {
        self.engine.reserve(&key(name), reserve(attempt(), "asked"), wait, None).await.unwrap()
    }

    pub async fn reclaim(&self, name: &str, seen: (OperationId, FencingToken)) -> Outcome {
        let lease = LeaseDuration::new(LEASE).unwrap();
        let (operation_id, token) = seen;
        self.carry_out(name, Command::Reclaim { operation_id, token, attempt_id: attempt(), lease }).await
    }

    pub async fn complete(&self, name: &str, grant: Grant, status: u32) -> Outcome {
        let Grant { operation_id, token, .. } = grant;
        self.carry_out(name, Command::Complete { operation_id, token, response: response(status) }).await
    }

    pub async fn release(&self, name: &str, grant: Grant) -> Outcome {
        let Grant { operation_id, token, .. } = grant;
        self.carry_out(name, Command::Release { operation_id, token }).await
    }

    pub async fn abandon(&self, name: &str, grant: Grant) -> Outcome {
        let Grant { operation_id, token, .. } = grant;
        self.carry_out(name, Command::Abandon { operation_id, token }).await
    }

    pub async fn renew(&self, name: &str, grant: Grant) -> Outcome {
        let Grant { operation_id, token, .. } = grant;
        self.carry_out(name, Command::Renew { operation_id, token, lease: LeaseDuration::new(LEASE).unwrap() }).await
    }

    pub async fn resolve(&self, name: &str, outcome: State) -> Result<Outcome, EngineError> {
        let text = |text: &str| text.to_owned();
        let audit = Audit { action: "release", reason: text("why"), operator: text("me"), service: text("test") };
        self.engine.resolve(&key(name), Command::Resolve { seen: None, outcome }, audit, None).await
    }

    /// Carries out commands that came in one call.
    pub async fn each(
        &self,
        asked: &[(KeyId, Command)],
        deadline: Option<Deadline>,
    ) -> Vec<Result<Outcome, EngineError>> {
        let names: Vec<_> = asked.iter().map(|(key, command)| (key, command)).collect();
        let ends = self.engine.begin_each(&names, deadline).await.into_iter().zip(asked);
        let end = async |(begun, (key, command)): (Begun, &(KeyId, Command))| match begun {
            Begun::Through(outcome) => Ok(outcome),
            Begun::Open(open) => self.engine.end(open, key, command).await,
        };
        join_all(ends.map(end)).await
    }

    async fn carry_out(&self, name: &str, command: Command) -> Outcome {
        self.engine.carry_out(&key(name), command, None).await.unwrap()
    }
}

pub fn key(name: &str) -> KeyId {
    KeyId { scope: Scope::new("rest/a").unwrap(), key: IdempotencyKey::new(name).unwrap() }
}

pub fn attempt() -> AttemptId {
    AttemptId(Uuid::new_v4())
}

pub fn reserve(attempt_id: AttemptId, asked: &str) -> Command {
    let lease = LeaseDuration::new(LEASE).unwrap();
    Command::Reserve {
        fingerprint: Fingerprint::of_request("POST", asked, "", b"{}").unwrap(),
        attempt_id,
        operation_id: OperationId(Uuid::new_v4()),
        lease,
        retention: RetentionPeriod::new(RETENTION, lease).unwrap(),
        trace_context: TraceContext::default(),
    }
}

pub fn response(status: u32) -> Response {
    Response::new(status, Vec::new(), "{}".into(), String::new()).unwrap()
}

/// Reads outcomes in tests: each asserts what it names.
pub trait Expect {
    fn granted(&self) -> Grant;
    fn stale(&self, reason: StaleReason) -> (OperationId, FencingToken);
    fn replayed_status(&self) -> u16;
}

impl Expect for Outcome {
    #[track_caller]
    fn granted(&self) -> Grant {
        match self.answer {
            Answer::Granted(grant) => grant,
            ref other => panic!("expected a grant, not {other:?}"),
        }
    }

    #[track_caller]
    fn stale(&self, reason: StaleReason) -> (OperationId, FencingToken) {
        match self.answer {
            Answer::Stale(operation_id, token, why) if why == reason => (operation_id, token),
            ref other => panic!("expected stale because of {reason:?}, not {other:?}"),
        }
    }

    #[track_caller]
    fn replayed_status(&self) -> u16 {
        match &self.answer {
            Answer::Replay(response) => response.status(),
            other => panic!("expected a replay, not {other:?}"),
        }
    }
}
