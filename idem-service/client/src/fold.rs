//! Calls that were asked for while others of their kind are under way, as one message.

mod kinds;
mod shared;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use idem_proto::idem::v1::ErrorReason;
use lane::{Lane, Load};
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use tracing::{Instrument, Span, debug};

use crate::{
    ClientError,
    connect::Channels,
    repeat::{Tries, span},
};
use kinds::Foldable;

// One is under way while the next is answered; more would only make the messages smaller.
const FLIGHTS: usize = 2;
// The contract's limit in number; in bytes half of it, which leaves room for names.
const LOAD: Load = Load { questions: 500, bytes: 2 * 1024 * 1024 };
// How long a server that does not fold is left alone with it: during an upgrade, the next one may.
const UNFOLDED: Duration = Duration::from_secs(60);

/// The calls of one kind.
#[derive(Clone)]
pub(crate) struct Fold<M: Foldable> {
    trips: Arc<Trips>,
    lane: Option<Lane<Question<M>, Answer<M>, ClientError>>,
}

/// What one caller hears, whatever became of the trip.
type Answer<M> = Result<<M as Foldable>::Answer, ClientError>;

/// A call, the span of its caller, and how long that caller waits.
#[derive(Clone)]
struct Question<M> {
    message: M,
    span: Span,
    deadline: Instant,
}

struct Trips {
    channels: Arc<Channels>,
    unfolded_until: Mutex<Option<Instant>>,
}

// === impl Fold ===

impl<M: Foldable> Fold<M> {
    pub(crate) fn new(channels: &Arc<Channels>, fold: bool) -> Self {
        let trips = Arc::new(Trips { channels: channels.clone(), unfolded_until: Mutex::new(None) });
        let carrying = trips.clone();
        let lane = fold.then(|| Lane::new(FLIGHTS, LOAD, weigh::<M>, move |asked| carrying.clone().carry(asked)));
        Self { trips, lane }
    }

    /// Makes the call, alone or with others. Its caller leaves at `deadline`, whoever travels along.
    pub(crate) async fn ask(&self, message: M, deadline: Instant) -> Answer<M> {
        let question = Question { message, span: span(M::ALONE), deadline };
        match &self.lane {
            Some(lane) if self.trips.may_fold() => match timeout_at(deadline, lane.carry_one(question)).await {
                Ok(answer) => answer.and_then(|answer| answer),
                Err(_) => Err(ClientError::timed_out()),
            },
            _ => self.trips.alone(question).await,
        }
    }
}

fn weigh<M: Foldable>(question: &Question<M>) -> usize {
    question.message.weight()
}

// === impl Trips ===

impl Trips {
    fn carry<M: Foldable>(
        self: Arc<Self>,
        mut questions: Vec<Question<M>>,
    ) -> BoxFuture<'static, Result<Vec<Answer<M>>, ClientError>> {
        async move {
            if questions.len() == 1 {
                let question = questions.remove(0);
                return Ok(vec![self.alone(question).await]);
            }
            match self.together(&questions).await {
                Err(refusal) if self.may_be_of_one(&refusal) => {
                    debug!(error = %refusal, calls = questions.len(), "refused together, the calls are made one by one");
                    Ok(join_all(questions.into_iter().map(|question| self.alone(question))).await)
                }
                answers => Ok(answers?.into_iter().map(Ok).collect()),
            }
        }
        .boxed()
    }

    async fn alone<M: Foldable>(&self, Question { message, span, deadline }: Question<M>) -> Answer<M> {
        self.channels.repeat(M::ALONE, message, Tries::Many, deadline, M::ask).instrument(span).await
    }

    /// As one message, for as long as anybody waits. Each call is traced under the span of its caller.
    async fn together<M: Foldable>(&self, questions: &[Question<M>]) -> Result<Vec<M::Answer>, ClientError> {
        let items = questions.iter().map(|question| {
            let mut item = question.message.clone();
            if item.trace_context().is_empty() {
                *item.trace_context() = self.channels.traceparent(&question.span);
            }
            item
        });
        let message = M::fold(items.collect());
        let Some(deadline) = questions.iter().map(|question| question.deadline).max() else { return Ok(Vec::new()) };
        self.channels.call(M::TOGETHER, message, Tries::Many, deadline, M::ask_many).await
    }

    /// One of the calls may be to blame for a refusal, or their number: alone, each is judged for itself.
    fn may_be_of_one(&self, error: &ClientError) -> bool {
        let ClientError::Refused { code, reason, .. } = error else { return false };
        if *code == Code::Unimplemented || *reason == ErrorReason::RpcNotGranted {
            debug!(%error, "the service does not take calls together, for now each is made alone");
            *self.unfolded_until() = Some(Instant::now() + UNFOLDED);
        }
        *code != Code::Unauthenticated
    }

    fn may_fold(&self) -> bool {
        let mut until = self.unfolded_until();
        *until = until.filter(|until| Instant::now() < *until);
        until.is_none()
    }

    fn unfolded_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.unfolded_until.lock().expect("nothing panics while it holds this lock")
    }
}
