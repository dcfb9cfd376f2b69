//! A layer between a memory store, a scripted inner service and a scripted system of record.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use idem_core::{
    AttemptId, Command, FencingToken, Fingerprint, Grant, IdempotencyKey, LeaseDuration, OperationId, Response,
    RetentionPeriod, Scope, State, StateName,
};
use idem_layer::{
    Hooks, Idempotency, IdempotencyService, Pace, RoutePolicy, Settings,
    ports::{Backend, KeyId},
};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt};

use crate::{
    memory::{Memory, trace_context},
    scripted::{Inner, Record},
};

pub const LEASE: Duration = Duration::from_secs(60);
pub const UPSTREAM: Duration = Duration::from_secs(25);
pub const BODY: &str = r#"{"a":1}"#;

/// Everything around one layer.
pub struct World {
    pub store: Memory,
    pub inner: Inner,
    pub record: Record,
    pub layer: Idempotency,
    pub links: Arc<Mutex<Vec<String>>>,
    policy: RoutePolicy,
}

/// What a client got.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request that is being made.
#[derive(Clone)]
pub struct Ask {
    method: &'static str,
    uri: String,
    scope: Option<Scope>,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Bytes,
}

impl World {
    pub fn new() -> Self {
        Self::with(RoutePolicy::required("POST /things"))
    }

    pub fn with(policy: RoutePolicy) -> Self {
        let store = Memory::new();
        Self::build(policy, store.clone(), store, (0, Pace::own()))
    }

    /// With another backend than the memory store, which stays empty.
    pub fn with_backend(backend: impl Backend) -> Self {
        Self::build(RoutePolicy::required("POST /things"), Memory::new(), backend, (0, Pace::own()))
    }

    /// That keeps answers in so many bytes, for which time passes like this.
    pub fn that_remembers(bytes: u64, pace: Pace) -> Self {
        let store = Memory::new();
        Self::build(RoutePolicy::required("POST /things"), store.clone(), store, (bytes, pace))
    }

    fn build(policy: RoutePolicy, store: Memory, backend: impl Backend, (replay_bytes, pace): (u64, Pace)) -> Self {
        let (inner, record) = (Inner::new(), Record::default());
        let links: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = links.clone();
        let hooks = Hooks::new(|operation| drop(spawn(operation)))
            .trace_id(|| "trace-1".to_owned())
            .traceparent(|| "00-this-request-01".to_owned())
            .link_to(move |to| noted.lock().unwrap().push(to.to_owned()));
        let lease = LeaseDuration::new(LEASE).unwrap();
        let retention = RetentionPeriod::new(Duration::from_secs(24 * 3600), lease).unwrap();
        let settings = Settings { replay_bytes, pace, ..Settings::new(lease, retention, UPSTREAM, hooks) };
        let layer = Idempotency::new(settings, backend, record.clone());
        Self { store, inner, record, layer, links, policy }
    }

    pub fn service(&self) -> IdempotencyService<Inner> {
        self.layer.layer(self.policy.clone()).layer(self.inner.clone())
    }

    pub async fn send(&self, ask: Ask) -> Answer {
        let response = self.service().oneshot(ask.request()).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    /// The request in a task of its own, until it is dropped.
    pub fn start(&self, ask: Ask) -> JoinHandle<Answer> {
        let service = self.service();
        spawn(async move {
            let (parts, body) = service.oneshot(ask.request()).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Answer { status: parts.status.as_u16(), headers: parts.headers, body }
        })
    }

    pub async fn post(&self, key: &str) -> Answer {
        self.send(post(key)).await
    }

    pub fn state(&self, key: &str) -> Option<StateName> {
        self.store.state(&key_id(key))
    }

    pub fn token(&self, key: &str) -> i64 {
        self.store.record(&key_id(key)).unwrap().token.0
    }

    pub fn operation_id(&self, key: &str) -> OperationId {
        self.store.record(&key_id(key)).unwrap().operation_id
    }

    /// Another process reserves the key for the request that [`post`] makes, and dies.
    pub fn reserved_by_the_dead(&self, key: &str) -> Grant {
        let command = Command::Reserve {
            fingerprint: Fingerprint::of_request("POST", "/things", "", BODY.as_bytes()).unwrap(),
            attempt_id: AttemptId(uuid::Uuid::new_v4()),
            operation_id: OperationId(uuid::Uuid::new_v4()),
            lease: LeaseDuration::new(LEASE).unwrap(),
            retention: RetentionPeriod::stored(Duration::from_secs(24 * 3600)),
            trace_context: trace_context("00-the-dead-01"),
        };
        match self.store.command(&key_id(key), command) {
            idem_core::Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Another process reserved the key and died, and its lease is over.
    pub async fn stale(&self, key: &str) -> Grant {
        let grant = self.reserved_by_the_dead(key);
        tokio::time::advance(LEASE).await;
        grant
    }

    /// Another process takes the key over from whoever holds it now.
    pub async fn taken_over(&self, key: &str) -> Grant {
        let record = self.store.record(&key_id(key)).unwrap();
        tokio::time::advance(LEASE).await;
        let command = Command::Reclaim {
            operation_id: record.operation_id,
            token: record.token,
            attempt_id: AttemptId(uuid::Uuid::new_v4()),
            lease: LeaseDuration::new(LEASE).unwrap(),
        };
        match self.store.command(&key_id(key), command) {
            idem_core::Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// An operator takes the key from its holder, however alive its lease is: the same fence as a reclaim after the lease, for a
    /// holder whose own clock has not moved.
    pub fn fenced(&self, key: &str) -> Grant {
        let record = self.store.record(&key_id(key)).unwrap();
        let resolved = self.store.command(&key_id(key), Command::Resolve { seen: None, outcome: State::InDoubt });
        assert_eq!(resolved, idem_core::Answer::Resolved);
        let command = Command::Reclaim {
            operation_id: record.operation_id,
            token: record.token.next(),
            attempt_id: AttemptId(uuid::Uuid::new_v4()),
            lease: LeaseDuration::new(LEASE).unwrap(),
        };
        match self.store.command(&key_id(key), command) {
            idem_core::Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Another process stores its answer.
    pub fn completed_by(&self, key: &str, grant: Grant, body: &'static str) {
        let response = Response::new(200, vec![], Bytes::from_static(body.as_bytes()), String::new()).unwrap();
        let command = Command::Complete { operation_id: grant.operation_id, token: grant.token, response };
        assert_eq!(self.store.command(&key_id(key), command), idem_core::Answer::Completed);
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Status and `error` or `error/code` of a problem.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        let error = body["error"].as_str().unwrap();
        let name = body["code"].as_str().map_or(error.to_owned(), |code| format!("{error}/{code}"));
        assert_eq!(body["status"], self.status);
        (self.status, name)
    }

    pub fn assert_problem(&self, status: u16, name: &str) {
        assert_eq!(self.problem(), (status, name.to_owned()));
    }
}

// === impl Ask ===

pub fn post(key: &str) -> Ask {
    ask("/things").key(key).body(BODY)
}

pub fn ask(uri: &str) -> Ask {
    let scope = Some(Scope::new("rest/a").unwrap());
    Ask { method: "POST", uri: uri.to_owned(), scope, headers: Vec::new(), body: Bytes::new() }
}

impl Ask {
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    pub fn scope(self, scope: Option<&str>) -> Self {
        Self { scope: scope.map(|scope| Scope::new(scope).unwrap()), ..self }
    }

    pub fn request(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(self.uri);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Full::new(self.body)).unwrap();
        if let Some(scope) = self.scope {
            request.extensions_mut().insert(scope);
        }
        request
    }
}

pub fn key_id(key: &str) -> KeyId {
    KeyId { scope: Scope::new("rest/a").unwrap(), key: IdempotencyKey::new(key).unwrap() }
}

pub const fn token(number: i64) -> FencingToken {
    FencingToken(number)
}

#[allow(clippy::disallowed_methods, reason = "nothing shuts down here")]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future)
}

/// Lets every task run until it waits for something other than time.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

// === counting ===

/// Counters by name and labels, for the thread that installs it.
#[derive(Default)]
pub struct Counters {
    counts: Arc<Mutex<BTreeMap<String, Arc<std::sync::atomic::AtomicU64>>>>,
}

impl Counters {
    /// For example `client_gone_total` or `outcomes_total{executed}`.
    pub fn get(&self, name: &str) -> u64 {
        self.all().get(name).copied().unwrap_or_default()
    }

    pub fn all(&self) -> BTreeMap<String, u64> {
        let counts = self.counts.lock().unwrap();
        counts.iter().map(|(name, count)| (name.clone(), count.load(std::sync::atomic::Ordering::Relaxed))).collect()
    }
}

impl metrics::Recorder for Counters {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        assert!(key.labels().any(|label| label.key() == "route" && label.value() == "POST /things"), "{key}");
        let name = key.name().strip_prefix("gateway_idempotency_").unwrap();
        let outcome = key.labels().find(|label| label.key() == "outcome");
        let name = outcome.map_or(name.to_owned(), |outcome| format!("{name}{{{}}}", outcome.value()));
        metrics::Counter::from_arc(self.counts.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}
