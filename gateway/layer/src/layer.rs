//! The layer: what every route shares, and the policy of one.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::Response;
use tower::Layer;

use crate::{
    IdempotencyService, Problem, RoutePolicy, Settings, capture,
    ports::{Backend, Recover, Replay},
    replays::Replays,
    tally::Verdict,
};

/// What the routes of a service share: settings, the backend that keeps keys, and who knows what happened. Cheap to clone.
#[derive(Clone)]
pub struct Idempotency {
    shared: Arc<Shared>,
}

/// Makes the routes that it goes around safe to retry, as its [`RoutePolicy`] says.
///
/// It goes inside whatever authenticates the caller and puts its [`Scope`](idem_core::Scope) into the request's extensions, and
/// inside whatever compresses answers, since `content-encoding` is not kept. The fingerprint is made of the whole path, also
/// behind axum's nested routers; another router that strips a prefix would make two paths one.
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) policy: Arc<RoutePolicy>,
}

/// The shared part, as the modules of this crate see it.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) recover: Arc<dyn Recover>,
    pub(crate) replays: Replays,
}

/// What a client is told, and how it is counted.
pub(crate) struct Answer {
    pub(crate) response: Response<Bytes>,
    pub(crate) verdict: Verdict,
}

// === impl Idempotency ===

impl Idempotency {
    /// Keys are kept by `backend`; `recover` is asked what an attempt that did not finish has done.
    pub fn new(settings: Settings, backend: impl Backend, recover: impl Recover) -> Self {
        Self::from_arcs(settings, Arc::new(backend), Arc::new(recover))
    }

    /// The same, for ports that are shared with others.
    pub fn from_arcs(settings: Settings, backend: Arc<dyn Backend>, recover: Arc<dyn Recover>) -> Self {
        let replays = Replays::new(settings.replay_bytes, settings.pace.clone());
        Self { shared: Arc::new(Shared { settings, backend, recover, replays }) }
    }

    /// The layer of one route.
    pub fn layer(&self, policy: RoutePolicy) -> IdempotencyLayer {
        IdempotencyLayer { shared: self.shared.clone(), policy: Arc::new(policy) }
    }
}

// === impl IdempotencyLayer ===

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(self.clone(), inner)
    }
}

// === impl Shared ===

impl Shared {
    /// A problem, as an answer under the current trace.
    pub(crate) fn render(&self, problem: &Problem) -> Response<Bytes> {
        problem.render(&self.settings.docs_base, &(self.settings.hooks.trace_id)())
    }

    /// The body of a problem, under the current trace.
    pub(crate) fn document(&self, problem: &Problem) -> Bytes {
        problem.document(&self.settings.docs_base, &(self.settings.hooks.trace_id)())
    }

    pub(crate) fn refuse(&self, problem: &Problem, verdict: Verdict) -> Answer {
        Answer { response: self.render(problem), verdict }
    }

    /// The stored answer; the current span is linked to the trace that made it.
    pub(crate) fn replay(&self, replay: &Replay) -> Answer {
        self.link_to(replay.trace_context.as_str());
        Answer { response: capture::replayed(replay), verdict: Verdict::Replayed }
    }

    pub(crate) fn link_to(&self, traceparent: &str) {
        if !traceparent.is_empty() {
            (self.settings.hooks.link_to)(traceparent);
        }
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").finish_non_exhaustive()
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("policy", &self.policy).finish_non_exhaustive()
    }
}
