//! How the layer behaves, and what it needs from the process around it.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use idem_core::{LeaseDuration, RetentionPeriod};

use crate::Pace;

type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// How the layer behaves.
#[derive(Clone)]
pub struct Settings {
    /// How long a holder is presumed alive; also the recovery lease.
    pub lease: LeaseDuration,
    /// How long an answer is replayed.
    pub retention: RetentionPeriod,
    /// How long look-up and execution may take together; shorter than the lease.
    pub upstream_timeout: Duration,
    /// Goes before `/docs/errors#…` in the type of problems; empty leaves a relative reference.
    pub docs_base: String,
    /// How many bytes of answers are kept, to be given again without asking the backend; none by default.
    pub replay_bytes: u64,
    /// How time passes for the backend's store.
    pub pace: Pace,
    /// What the process provides.
    pub hooks: Hooks,
}

/// What the process provides. Each hook but `spawn` is called inside the span of the request.
#[derive(Clone)]
pub struct Hooks {
    pub(crate) spawn: Spawn,
    pub(crate) trace_id: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) traceparent: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) link_to: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Settings {
    /// Settings with relative links, that keep no answers.
    pub fn new(lease: LeaseDuration, retention: RetentionPeriod, upstream_timeout: Duration, hooks: Hooks) -> Self {
        let (docs_base, replay_bytes, pace) = (String::new(), 0, Pace::own());
        Self { lease, retention, upstream_timeout, docs_base, replay_bytes, pace, hooks }
    }
}

impl Hooks {
    /// Hooks without tracing. `spawn` runs an operation to its end, whatever becomes of the connection; shutdown should wait for
    /// what was spawned.
    pub fn new(spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        Self {
            spawn: Arc::new(spawn),
            // A problem always has an id to be quoted by.
            trace_id: Arc::new(|| uuid::Uuid::new_v4().simple().to_string()),
            traceparent: Arc::new(String::new),
            link_to: Arc::new(|_| ()),
        }
    }

    /// The trace id of the current span, for problems.
    #[must_use]
    pub fn trace_id(self, trace_id: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { trace_id: Arc::new(trace_id), ..self }
    }

    /// The current span as a W3C `traceparent`, to be kept with the key; empty for none.
    #[must_use]
    pub fn traceparent(self, traceparent: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { traceparent: Arc::new(traceparent), ..self }
    }

    /// Links the current span to the trace of an earlier attempt, given as it was kept.
    #[must_use]
    pub fn link_to(self, link_to: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { link_to: Arc::new(link_to), ..self }
    }
}
