//! Batch what waits, never wait to batch.
//!
//! Nothing waits for company: whoever finds a flight free departs at once and alone. Only when every flight is out do questions
//! gather, and each flight that lands takes its share of them. So a lone call pays no delay, and a thousand calls a second cost a hundred trips.
//!
//! A crowd is shared among the flights. All in one, they would be answered together, ask again together, and whatever they travel
//! through would stand still while they are elsewhere; in two halves, one is carried while the other is prepared. A few stay together:
//! a trip costs something however little it carries.
//!
//! A caller that goes away before its trip departs is left out of it; afterwards it changes nothing for the others. A failure is told
//! to everybody aboard, except one that some caller brought along: then each is asked for again alone, so that it stays with its
//! owner.

mod queue;
mod shared;
#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either},
};
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};

use queue::{Caller, Queue};

pub use shared::Shared;

/// What travels together at most; a caller with more than that travels alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// In number.
    pub questions: usize,
    /// In bytes, as the lane weighs them.
    pub bytes: usize,
}

/// What a lane must know of the failures of its trips.
pub trait Failure: Send + Sync + Sized + 'static {
    /// One of those aboard may have caused it, and the others would get through without it.
    fn is_of_one(&self) -> bool;
    /// The same failure, for one of several that share it.
    fn share(shared: &Arc<Self>) -> Self;
    /// A trip that brought no answers.
    fn lost(how: Lost) -> Self;
}

/// How a trip can bring no answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Lost {
    /// The runtime is going away.
    #[error("the process is ending")]
    Ending,
    /// The code that carries it panicked.
    #[error("the trip panicked")]
    Panicked,
    /// There are not as many answers as questions.
    #[error("{answers} answers to {questions} questions")]
    Miscounted {
        /// Asked.
        questions: usize,
        /// Answered.
        answers: usize,
    },
}

/// A queue of callers, and the few flights that carry their questions. Cheap to clone; every clone is the same lane.
pub struct Lane<Q, A, E> {
    inner: Arc<Inner<Q, A, E>>,
}

type Answers<A, E> = Result<Vec<A>, E>;
type Carry<Q, A, E> = dyn Fn(Vec<Q>) -> BoxFuture<'static, Answers<A, E>> + Send + Sync;

struct Inner<Q, A, E> {
    queue: Queue<Q, A, E>,
    carry: Box<Carry<Q, A, E>>,
}

// === impl Lane ===

impl<Q, A, E> Lane<Q, A, E>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
    E: Failure,
{
    /// At most `flights` trips at a time (at least one), each with at most `load`; `bytes` weighs a question. `carry` makes a trip, and
    /// brings an answer to each question, in their order.
    pub fn new(
        flights: usize,
        load: Load,
        bytes: fn(&Q) -> usize,
        carry: impl Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, E>> + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(Inner { queue: Queue::new(flights.max(1), load, bytes), carry: Box::new(carry) }) }
    }

    /// Carries `questions` with whatever else waits, and brings their answers. They travel in one trip.
    pub async fn carry(&self, questions: Vec<Q>) -> Result<Vec<A>, E> {
        let (reply, answers) = oneshot::channel();
        if self.inner.queue.line_up(Caller { questions, reply }) {
            fly(self.inner.clone());
        }
        answers.await.unwrap_or_else(|_| Err(E::lost(Lost::Ending)))
    }

    /// How many callers wait for a flight.
    pub fn waiting(&self) -> usize {
        self.inner.queue.waiting()
    }

    /// Carries one question.
    pub async fn carry_one(&self, question: Q) -> Result<A, E> {
        let mut answers = self.carry(vec![question]).await?;
        let answered = answers.len();
        answers.pop().ok_or_else(|| E::lost(Lost::Miscounted { questions: 1, answers: answered }))
    }
}

impl<Q, A, E> Clone for Lane<Q, A, E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

/// Carries whoever waits, until nobody does. A flight belongs to nobody's trace: it carries on with others when its first caller has
/// been answered.
#[allow(clippy::disallowed_methods, reason = "whoever must be waited for at shutdown waits for the answer of a flight")]
fn fly<Q, A, E>(inner: Arc<Inner<Q, A, E>>)
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
    E: Failure,
{
    let flight = async move {
        // Whoever can ask already does so first: what has woken one caller has often woken others.
        tokio::task::yield_now().await;
        while let Some(load) = inner.queue.next_load() {
            if load.is_another_free {
                fly(inner.clone());
            }
            inner.trip(load.callers).await;
            inner.queue.landed(load.questions);
        }
    };
    tokio::spawn(flight.instrument(Span::none()));
}

// === impl Inner ===

impl<Q, A, E> Inner<Q, A, E>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
    E: Failure,
{
    async fn trip(&self, mut callers: Vec<Caller<Q, A, E>>) {
        if let [_] = callers[..] {
            let caller = callers.remove(0);
            let answers = self.ask(caller.questions).await;
            return answer(caller.reply, answers);
        }
        let sizes: Vec<usize> = callers.iter().map(|caller| caller.questions.len()).collect();
        let questions = callers.iter().flat_map(|caller| caller.questions.iter().cloned()).collect();
        match self.ask(questions).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (caller, size) in callers.into_iter().zip(sizes) {
                    answer(caller.reply, Ok(answers.by_ref().take(size).collect()));
                }
            }
            Err(failure) if failure.is_of_one() => {
                for caller in callers {
                    let answers = self.ask(caller.questions).await;
                    answer(caller.reply, answers);
                }
            }
            Err(failure) => {
                let shared = Arc::new(failure);
                callers.into_iter().for_each(|caller| answer(caller.reply, Err(E::share(&shared))));
            }
        }
    }

    /// One trip. A panic there is an answer too: the flight must go on.
    async fn ask(&self, questions: Vec<Q>) -> Answers<A, E> {
        let asked = questions.len();
        let trip = match std::panic::catch_unwind(AssertUnwindSafe(|| (self.carry)(questions))) {
            Ok(trip) => Either::Left(AssertUnwindSafe(trip).catch_unwind()),
            Err(panic) => Either::Right(std::future::ready(Err(panic))),
        };
        match trip.await {
            Ok(Ok(answers)) if answers.len() != asked => {
                Err(E::lost(Lost::Miscounted { questions: asked, answers: answers.len() }))
            }
            Ok(answers) => answers,
            Err(_) => Err(E::lost(Lost::Panicked)),
        }
    }
}

/// The caller may have gone meanwhile, which changes nothing.
fn answer<A, E>(reply: oneshot::Sender<Answers<A, E>>, answers: Answers<A, E>) {
    let _ = reply.send(answers);
}
