//! The admin port: is it alive, is it ready, what does it count.

use crate::{shutdown::Shutdown, telemetry};
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use futures::future::{BoxFuture, join_all};
use serde::Serialize;
use std::{
    fmt,
    future::Future,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Balancers ask every few seconds and give up soon: an answer that is late is as good as none.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Whether this service wants traffic: cheap to clone, every clone is the same answer. Starts as not ready.
#[derive(Clone)]
pub struct Readiness {
    inner: Arc<Inner>,
}

struct Inner {
    ready: AtomicBool,
    checks: RwLock<Vec<Check>>,
    follows: RwLock<Option<Shutdown>>,
}

type Probe = dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync;

#[derive(Clone)]
struct Check {
    name: &'static str,
    probe: Arc<Probe>,
}

/// A reason for not being ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failing {
    /// The name of the check.
    pub check: &'static str,
    /// What it says.
    pub reason: String,
}

#[derive(Serialize)]
struct Report {
    ready: bool,
    failing: Vec<Failing>,
}

/// `/healthz` (200 while the process lives), `/readyz` (200 or 503 with what fails) and `/metrics` (Prometheus text).
pub fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(readiness)
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    let failing = readiness.failing().await;
    let ready = failing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Report { ready, failing }))
}

async fn metrics() -> impl IntoResponse {
    telemetry::observe().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::render_metrics())
}

// === impl Readiness ===

impl Readiness {
    /// Not ready, without checks.
    pub fn new() -> Self {
        let inner =
            Inner { ready: AtomicBool::new(false), checks: RwLock::new(Vec::new()), follows: RwLock::new(None) };
        Self { inner: Arc::new(inner) }
    }

    /// Says whether the service serves: true after it is bound and open, false when its end is announced.
    pub fn set(&self, ready: bool) {
        self.inner.ready.store(ready, Ordering::Relaxed);
    }

    /// Whether the service serves. Does not ask the registered checks.
    pub fn is_ready(&self) -> bool {
        self.inner.ready.load(Ordering::Relaxed) && !self.is_leaving()
    }

    /// Fails as soon as `shutdown` is announced, so that several services of one process leave together.
    pub fn follow(&self, shutdown: Shutdown) {
        *self.inner.follows.write().expect("nothing panics while it holds this lock") = Some(shutdown);
    }

    /// Registers a probe that `/readyz` runs each time, for at most one second.
    pub fn check<F, Fut>(&self, name: &'static str, probe: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let probe: Arc<Probe> = Arc::new(move || Box::pin(probe()));
        self.inner.checks.write().expect("nothing panics while it holds this lock").push(Check { name, probe });
    }

    /// Everything that speaks against traffic now, in the order of registration. Runs the probes side by side.
    pub async fn failing(&self) -> Vec<Failing> {
        if self.is_leaving() {
            return vec![Failing { check: "serving", reason: "shutting down".to_owned() }];
        }
        if !self.is_ready() {
            return vec![Failing { check: "serving", reason: "not serving".to_owned() }];
        }
        let checks = self.inner.checks.read().expect("nothing panics while it holds this lock").clone();
        join_all(checks.iter().map(Check::run)).await.into_iter().flatten().collect()
    }

    fn is_leaving(&self) -> bool {
        let follows = self.inner.follows.read().expect("nothing panics while it holds this lock");
        follows.as_ref().is_some_and(Shutdown::is_leaving)
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("ready", &self.is_ready()).finish_non_exhaustive()
    }
}

// === impl Check ===

impl Check {
    async fn run(&self) -> Option<Failing> {
        let reason = match tokio::time::timeout(PROBE_LIMIT, (self.probe)()).await {
            Ok(Ok(())) => return None,
            Ok(Err(reason)) => reason,
            Err(_) => "no answer within 1 s".to_owned(),
        };
        Some(Failing { check: self.name, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use http::Request;
    use tower::ServiceExt;

    async fn get(readiness: &Readiness, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(readiness.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_from_the_start_but_ready_only_when_told() {
        let readiness = Readiness::new();
        assert_eq!(get(&readiness, "/healthz").await.0, 200);
        let (status, body) = get(&readiness, "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body, r#"{"ready":false,"failing":[{"check":"serving","reason":"not serving"}]}"#);
        readiness.set(true);
        assert_eq!(get(&readiness, "/readyz").await, (StatusCode::OK, r#"{"ready":true,"failing":[]}"#.to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn failing_and_hanging_checks_are_named() {
        let readiness = Readiness::new();
        readiness.set(true);
        readiness.check("fine", || async { Ok(()) });
        readiness.check("store", || async { Err("connection refused".to_owned()) });
        readiness.check("orders", std::future::pending);
        let (status, body) = get(&readiness, "/readyz").await;
        assert_eq!(status, 503);
        assert!(body.contains(r#"{"check":"store","reason":"connection refused"}"#), "{body}");
        assert!(body.contains(r#"{"check":"orders","reason":"no answer within 1 s"}"#), "{body}");
        assert!(!body.contains("fine"), "{body}");
    }

    #[tokio::test]
    async fn readiness_fails_as_soon_as_the_end_is_announced() {
        let (trigger, shutdown) = Shutdown::new();
        let readiness = Readiness::new();
        readiness.set(true);
        readiness.follow(shutdown.clone());
        assert!(readiness.is_ready());
        trigger.leave();
        assert!(!readiness.is_ready() && !shutdown.is_draining());
        assert!(get(&readiness, "/readyz").await.1.contains("shutting down"));
    }

    #[tokio::test]
    async fn metrics_are_prometheus_text() {
        let _ = telemetry::render_metrics();
        metrics::counter!("admin_test_total").increment(3);
        let (status, body) = get(&Readiness::new(), "/metrics").await;
        assert_eq!(status, 200);
        assert!(body.contains("admin_test_total 3"), "{body}");
    }
}
