//! The two sides of an operation, each saying what the test wrote for it.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use idem_core::{FencingToken, OperationId};
use idem_layer::ports::{Found, Label, Outcome, Permit, Recover, RecoverError};
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tower::Service;

/// What the inner service does with one request.
pub enum Act {
    /// Answers.
    Answer(Response<Full<Bytes>>),
    /// Fails without an answer.
    Fail,
    /// Panics.
    Panic,
    /// Never answers.
    Hang,
    /// Waits until the test opens the gate, then does this.
    Gated(Gate, Box<Act>),
    /// Takes this long, then does this.
    Slow(Duration, Box<Act>),
}

/// Closed until the test opens it; it says when somebody has arrived.
#[derive(Clone)]
pub struct Gate {
    arrived: Arc<Notify>,
    open: Arc<Semaphore>,
}

/// The inner service. Executes what was scripted, then `created` for good.
#[derive(Clone)]
pub struct Inner {
    shared: Arc<InnerShared>,
    /// Only the clone that was polled ready may be called.
    is_ready: bool,
}

struct InnerShared {
    script: Mutex<VecDeque<Act>>,
    seen: Mutex<Vec<Seen>>,
}

/// One execution.
#[derive(Clone, Debug)]
pub struct Seen {
    pub permit: Option<Permit>,
    pub at: Instant,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The system of record. Says what was scripted, then `Unknown` for good.
#[derive(Clone, Default)]
pub struct Record {
    shared: Arc<RecordShared>,
}

#[derive(Default)]
struct RecordShared {
    script: Mutex<VecDeque<Say>>,
    asked: Mutex<Vec<(OperationId, FencingToken)>>,
}

/// What the system of record does with one question.
pub enum Say {
    Found(Found),
    Unreachable,
    Fenced,
    Panic,
    Hang,
    Slow(Duration, Box<Say>),
    Gated(Gate, Box<Say>),
}

// === answers ===

/// An answer with an outcome.
pub fn labelled(status: u16, body: &str, label: Label) -> Response<Full<Bytes>> {
    let mut response = unlabelled(status, body);
    response.extensions_mut().insert(outcome(label));
    response
}

pub fn unlabelled(status: u16, body: &str) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("location", "/things/1")
        .header("set-cookie", "session=1")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

pub fn outcome(label: Label) -> Outcome {
    Outcome { label, is_replayed: false, resource_id: "thing-1".to_owned() }
}

pub fn created() -> Act {
    Act::Answer(labelled(201, r#"{"made":1}"#, Label::Final))
}

pub fn sold_out() -> Act {
    Act::Answer(labelled(409, r#"{"error":"sold_out"}"#, Label::NoEffect))
}

pub fn not_run() -> Act {
    let body = r#"{"error":"upstream_unavailable","code":"nothing_happened"}"#;
    Act::Answer(labelled(503, body, Label::NotRun))
}

pub fn unknown() -> Act {
    Act::Answer(labelled(503, "{}", Label::Unknown))
}

pub fn pending() -> Act {
    Act::Answer(labelled(202, r#"{"status":"pending"}"#, Label::Undecided))
}

pub fn settled(status: u16, body: &str, label: Label) -> Say {
    let response = unlabelled(status, body);
    let body = Bytes::copy_from_slice(body.as_bytes());
    Say::Found(Found::Settled(response.map(|_| body), outcome(label)))
}

// === impl Gate ===

impl Gate {
    pub fn closed() -> Self {
        Self { arrived: Arc::new(Notify::new()), open: Arc::new(Semaphore::new(0)) }
    }

    pub fn open(&self) {
        self.open.add_permits(1);
    }

    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    async fn pass(&self) {
        self.arrived.notify_one();
        self.open.acquire().await.unwrap().forget();
    }
}

// === impl Inner ===

impl Inner {
    pub fn new() -> Self {
        let shared = InnerShared { script: Mutex::default(), seen: Mutex::default() };
        Self { shared: Arc::new(shared), is_ready: false }
    }

    pub fn will(&self, act: Act) -> &Self {
        self.shared.script.lock().unwrap().push_back(act);
        self
    }

    /// Whatever was scripted and not executed is not wanted any more.
    pub fn forget(&self) {
        self.shared.script.lock().unwrap().clear();
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub fn executions(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }
}

impl Act {
    fn run(self) -> BoxFuture<'static, Result<Response<Full<Bytes>>, std::io::Error>> {
        Box::pin(async move {
            match self {
                Act::Answer(response) => Ok(response),
                Act::Fail => Err(std::io::Error::other("the inner service failed")),
                Act::Panic => panic!("the inner service panics on purpose"),
                Act::Hang => std::future::pending().await,
                Act::Gated(gate, then) => {
                    gate.pass().await;
                    then.run().await
                }
                Act::Slow(by, then) => {
                    tokio::time::sleep(by).await;
                    then.run().await
                }
            }
        })
    }
}

impl Service<Request<Full<Bytes>>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "the service that is called was not polled ready");
        let shared = self.shared.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap_or_else(|never: Infallible| match never {}).to_bytes();
            let seen =
                Seen { permit: parts.extensions.get().copied(), at: Instant::now(), headers: parts.headers, body };
            shared.seen.lock().unwrap().push(seen);
            let act = shared.script.lock().unwrap().pop_front();
            act.unwrap_or_else(created).run().await
        })
    }
}

// === impl Record ===

impl Record {
    pub fn will(&self, say: Say) -> &Self {
        self.shared.script.lock().unwrap().push_back(say);
        self
    }

    /// The questions, in order.
    pub fn asked(&self) -> Vec<(OperationId, FencingToken)> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Say {
    fn run(self) -> BoxFuture<'static, Result<Found, RecoverError>> {
        Box::pin(async move {
            match self {
                Say::Found(found) => Ok(found),
                Say::Unreachable => Err(RecoverError::Unreachable("down".into())),
                Say::Fenced => Err(RecoverError::Fenced),
                Say::Panic => panic!("the system of record panics on purpose"),
                Say::Hang => std::future::pending().await,
                Say::Slow(by, then) => {
                    tokio::time::sleep(by).await;
                    then.run().await
                }
                Say::Gated(gate, then) => {
                    gate.pass().await;
                    then.run().await
                }
            }
        })
    }
}

#[async_trait]
impl Recover for Record {
    async fn lookup(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        _deadline: Instant,
    ) -> Result<Found, RecoverError> {
        self.shared.asked.lock().unwrap().push((operation_id, token));
        let say = self.shared.script.lock().unwrap().pop_front();
        say.unwrap_or(Say::Found(Found::Unknown)).run().await
    }
}
