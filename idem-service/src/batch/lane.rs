//! A queue of callers, and the few flights that carry their questions to the store.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use chassis::tasks::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tracing::Span;

use crate::store::StoreError;

/// What travels together at most; a caller with more than that travels alone.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) questions: usize,
    pub(super) bytes: usize,
}

/// Questions of one kind on their way to the store.
pub(super) struct Lane<Q, A> {
    inner: Arc<Inner<Q, A>>,
    tasks: Tasks,
}

type Answers<A> = Result<Vec<A>, StoreError>;
type Carry<Q, A> = dyn Fn(Vec<Q>) -> BoxFuture<'static, Answers<A>> + Send + Sync;

struct Inner<Q, A> {
    name: &'static str,
    flights_max: usize,
    load_max: Load,
    bytes: fn(&Q) -> usize,
    carry: Box<Carry<Q, A>>,
    queue: Mutex<Queue<Q, A>>,
}

struct Queue<Q, A> {
    waiting: VecDeque<Caller<Q, A>>,
    flights: usize,
}

struct Caller<Q, A> {
    questions: Vec<Q>,
    reply: oneshot::Sender<Answers<A>>,
}

/// An error that several callers share.
#[derive(Clone, Debug)]
struct Shared(Arc<StoreError>);

// === impl Lane ===

impl<Q, A> Lane<Q, A>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
{
    pub(super) fn new(
        name: &'static str,
        flights: usize,
        load_max: Load,
        bytes: fn(&Q) -> usize,
        carry: impl Fn(Vec<Q>) -> BoxFuture<'static, Answers<A>> + Send + Sync + 'static,
    ) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), flights: 0 });
        let inner = Inner { name, flights_max: flights.max(1), load_max, bytes, carry: Box::new(carry), queue };
        Self { inner: Arc::new(inner), tasks: Tasks::new() }
    }

    /// Carries `questions` with whatever else waits, and brings their answers.
    pub(super) async fn carry(&self, questions: Vec<Q>) -> Answers<A> {
        let (reply, answers) = oneshot::channel();
        if self.inner.line_up(Caller { questions, reply }) {
            let inner = self.inner.clone();
            // A flight belongs to nobody's trace: it carries on with others when its first caller has been answered.
            drop(Span::none().in_scope(|| self.tasks.spawn("batch", async move { inner.fly().await })));
        }
        answers.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the process is ending".into())))
    }
}

// === impl Inner ===

impl<Q, A> Inner<Q, A>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
{
    /// Queues a caller; true when it is to start a flight itself.
    fn line_up(&self, caller: Caller<Q, A>) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back(caller);
        let is_free = queue.flights < self.flights_max;
        queue.flights += usize::from(is_free);
        is_free
    }

    /// Carries whoever waits, until nobody does.
    async fn fly(&self) {
        while let Some(callers) = self.next_batch() {
            let sizes: Vec<usize> = callers.iter().map(|caller| caller.questions.len()).collect();
            let questions: Vec<Q> = callers.iter().flat_map(|caller| caller.questions.iter().cloned()).collect();
            metrics::histogram!("idem_store_batch_size", "operation" => self.name).record(questions.len() as f64);
            match self.ask(questions).await {
                Ok(mut answers) => {
                    for (caller, size) in callers.into_iter().zip(sizes) {
                        let rest = answers.split_off(size);
                        caller.answer(Ok(std::mem::replace(&mut answers, rest)));
                    }
                }
                Err(StoreError::Broken(_)) if callers.len() > 1 => {
                    for caller in callers {
                        let answers = self.ask(caller.questions.clone()).await;
                        caller.answer(answers);
                    }
                }
                Err(error) => {
                    let shared = Shared(Arc::new(error));
                    callers.into_iter().for_each(|caller| caller.answer(Err(shared.clone().into())));
                }
            }
        }
    }

    /// The next load, or the end of the flight.
    fn next_batch(&self) -> Option<Vec<Caller<Q, A>>> {
        let mut queue = self.queue();
        let (mut callers, mut questions, mut bytes) = (Vec::new(), 0, 0_usize);
        while let Some(next) = queue.waiting.front() {
            questions += next.questions.len();
            bytes = bytes.saturating_add(next.questions.iter().map(self.bytes).sum());
            let fits = questions <= self.load_max.questions && bytes <= self.load_max.bytes;
            if !fits && !callers.is_empty() {
                break;
            }
            // One that has gone meanwhile starts no work.
            callers.extend(queue.waiting.pop_front().filter(|caller| !caller.reply.is_closed()));
        }
        if callers.is_empty() {
            queue.flights -= 1;
            return None;
        }
        Some(callers)
    }

    /// One trip to the store. A panic there is an answer too: the flight must go on.
    async fn ask(&self, questions: Vec<Q>) -> Answers<A> {
        let asked = questions.len();
        match AssertUnwindSafe(async { (self.carry)(questions).await }).catch_unwind().await {
            Ok(Ok(answers)) if answers.len() != asked => {
                Err(StoreError::Broken(format!("{} answers to {asked} questions", answers.len()).into()))
            }
            Ok(answers) => answers,
            Err(_) => Err(StoreError::Broken("the store panicked".into())),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Q, A>> {
        self.queue.lock().expect("nothing panics while it holds this lock")
    }
}

// === impl Caller ===

impl<Q, A> Caller<Q, A> {
    fn answer(self, answers: Answers<A>) {
        // It may have gone meanwhile, which changes nothing.
        let _ = self.reply.send(answers);
    }
}

// === impl Shared ===

impl From<Shared> for StoreError {
    fn from(shared: Shared) -> Self {
        match *shared.0 {
            StoreError::Unavailable(_) => StoreError::Unavailable(Box::new(shared)),
            StoreError::Broken(_) => StoreError::Broken(Box::new(shared)),
        }
    }
}

impl Shared {
    fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        match &*self.0 {
            StoreError::Unavailable(cause) | StoreError::Broken(cause) => &**cause,
        }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().source()
    }
}
