//! The idempotency layer between doubles that only count.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use idem_core::{AttemptId, FencingToken, LeaseDuration, OperationId, RetentionPeriod, Scope};
use idem_layer::{
    Hooks, Idempotency, RoutePolicy, Settings,
    ports::{Backend, BackendError, Finished, Found, KeyId, Reclaimed, Recover, RecoverError, ReserveCall, Reserved},
};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

/// The layer around a route that answers 200 to everything it is asked. Every key is bound to another request, so a keyed request
/// that is admitted is 422, and nothing waits.
pub struct Layered {
    layer: Idempotency,
    policy: RoutePolicy,
    counts: Arc<Counts>,
}

/// What a client got.
pub struct Answer {
    pub status: u16,
    /// Of a problem.
    pub error: String,
    pub preference_applied: Option<String>,
    pub body: Bytes,
}

#[derive(Default)]
struct Counts {
    backend: AtomicUsize,
    executions: AtomicUsize,
    body: Mutex<Bytes>,
}

struct Bound(Arc<Counts>);

struct NeverAsked;

impl Layered {
    /// Keys are required.
    pub fn new() -> Self {
        Self::with(RoutePolicy::required("POST /things"))
    }

    /// Keys are ignored; bodies are read and checked all the same.
    pub fn unkeyed() -> Self {
        Self::with(RoutePolicy::unkeyed("POST /things"))
    }

    fn with(policy: RoutePolicy) -> Self {
        let counts = Arc::new(Counts::default());
        let lease = LeaseDuration::new(Duration::from_secs(60)).unwrap();
        let retention = RetentionPeriod::new(Duration::from_secs(3600), lease).unwrap();
        let tasks = chassis::tasks::Tasks::new();
        let hooks = Hooks::new(move |operation| drop(tasks.spawn("operation", operation)));
        let settings = Settings::new(lease, retention, Duration::from_secs(25), hooks);
        let layer = Idempotency::new(settings, Bound(counts.clone()), NeverAsked);
        Self { layer, policy, counts }
    }

    /// Sends one request.
    pub async fn post(&self, headers: HeaderMap, body: &[u8]) -> Answer {
        let counts = self.counts.clone();
        let inner = service_fn(move |request: Request<Full<Bytes>>| {
            let counts = counts.clone();
            async move {
                counts.executions.fetch_add(1, Ordering::SeqCst);
                *counts.body.lock().unwrap() = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
            }
        });
        let mut request = Request::post("/things").body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        *request.headers_mut() = headers;
        request.extensions_mut().insert(Scope::new("rest/a").unwrap());
        let service = self.layer.layer(self.policy.clone()).layer(inner);
        let (parts, body) = service.oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let error = serde_json::from_slice(&body)
            .ok()
            .and_then(|it: serde_json::Value| it["error"].as_str().map(str::to_owned));
        let preference_applied =
            parts.headers.get("preference-applied").map(|value| value.to_str().unwrap().to_owned());
        Answer { status: parts.status.as_u16(), error: error.unwrap_or_default(), preference_applied, body }
    }

    /// How often the backend was asked.
    pub fn backend_calls(&self) -> usize {
        self.counts.backend.load(Ordering::SeqCst)
    }

    /// How often the route was executed.
    pub fn executions(&self) -> usize {
        self.counts.executions.load(Ordering::SeqCst)
    }

    /// The body that the route got last.
    pub fn executed_body(&self) -> Bytes {
        self.counts.body.lock().unwrap().clone()
    }
}

#[async_trait]
impl Backend for Bound {
    async fn reserve(&self, _: ReserveCall, _: Instant) -> Result<Reserved, BackendError> {
        self.0.backend.fetch_add(1, Ordering::SeqCst);
        Ok(Reserved::Mismatch)
    }

    async fn reclaim(
        &self,
        _: &KeyId,
        _: (OperationId, FencingToken),
        _: AttemptId,
        _: LeaseDuration,
        _: Instant,
    ) -> Result<Reclaimed, BackendError> {
        unreachable!("nothing is stale")
    }

    async fn complete(
        &self,
        _: &KeyId,
        _: (OperationId, FencingToken),
        _: idem_core::Response,
        _: Instant,
    ) -> Result<Finished, BackendError> {
        unreachable!("nothing is granted")
    }

    async fn release(&self, _: &KeyId, _: (OperationId, FencingToken), _: Instant) -> Result<Finished, BackendError> {
        unreachable!("nothing is granted")
    }

    async fn abandon(&self, _: &KeyId, _: (OperationId, FencingToken), _: Instant) -> Result<Finished, BackendError> {
        unreachable!("nothing is granted")
    }
}

#[async_trait]
impl Recover for NeverAsked {
    async fn lookup(&self, _: OperationId, _: FencingToken, _: Instant) -> Result<Found, RecoverError> {
        unreachable!("nothing is stale")
    }
}
