//! gRPC health: NOT_SERVING while the store is away, and from the moment the end of the process is announced.
//!
//! The store is asked when somebody asks for health, at most once a second; nobody asks it for the sake of a report that nobody reads.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chassis::admin::Readiness;
use chassis::shutdown::Shutdown;
use futures::{Stream, StreamExt};
use idem_proto::idem::v1::admin_service_server::SERVICE_NAME as ADMIN;
use idem_proto::idem::v1::idempotency_service_server::SERVICE_NAME as IDEMPOTENCY;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

use crate::store::Store;

/// Balancers ask every few seconds; asking the store more often would tell them nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A store that takes longer for a sign of life does not serve either.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// Asked by whoever restarts processes: serving as long as the process answers. A store that is away is no reason to start anew.
const LIVENESS: &str = "liveness";

/// Lets `/readyz` ask the store.
pub(crate) fn check_store(readiness: &Readiness, store: &Arc<dyn Store>) {
    let store = store.clone();
    readiness.check("store", move || {
        let store = store.clone();
        async move { store.ping().await.map_err(|_| "the store cannot be reached".to_owned()) }
    });
}

/// Answers who asks for health. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub(crate) struct Reporting {
    shared: Arc<Shared>,
}

struct Shared {
    reporter: HealthReporter,
    told: HealthService,
    store: Arc<dyn Store>,
    readiness: Readiness,
    shutdown: Shutdown,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When the store was asked, and whether it answered.
    store: Option<(Instant, bool)>,
    /// What watchers have been told.
    is_serving: bool,
}

// === impl Reporting ===

impl Reporting {
    /// Knows every service, and that none serves yet.
    pub(crate) async fn new(store: Arc<dyn Store>, readiness: Readiness, shutdown: Shutdown) -> Self {
        let reporter = HealthReporter::new();
        reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
        set(&reporter, false).await;
        let told = HealthService::from_health_reporter(reporter.clone());
        Self { shared: Arc::new(Shared { reporter, told, store, readiness, shutdown, seen: Mutex::default() }) }
    }

    /// Tells watchers of the drain when it begins, and nothing else. Ends with whoever drops it.
    pub(crate) async fn follow(&self) {
        self.shared.shutdown.draining().await;
        self.look().await;
        std::future::pending().await
    }

    /// Makes the report say what is true now. Whoever asks at the same time shares one sign of life.
    async fn look(&self) {
        let Shared { reporter, store, readiness, shutdown, seen, .. } = &*self.shared;
        let mut seen = seen.lock().await;
        let wants_to_serve = readiness.is_ready() && !shutdown.is_leaving() && !shutdown.is_draining();
        let is_serving = wants_to_serve && seen.is_alive(store.as_ref()).await;
        if is_serving != seen.is_serving {
            seen.is_serving = is_serving;
            set(reporter, is_serving).await;
        }
    }
}

// === impl Seen ===

impl Seen {
    async fn is_alive(&mut self, store: &dyn Store) -> bool {
        if let Some((at, is_alive)) = self.store
            && at.elapsed() < LOOK_EVERY
        {
            return is_alive;
        }
        let answered = timeout(PING_LIMIT, store.ping()).await;
        let is_alive = matches!(answered, Ok(Ok(())));
        self.store = Some((Instant::now(), is_alive));
        is_alive
    }
}

#[tonic::async_trait]
impl Health for Reporting {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if request.get_ref().service != LIVENESS {
            self.look().await;
        }
        self.shared.told.check(request).await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.look().await;
        let changes = self.shared.told.watch(request).await?.into_inner();
        let reporting = self.clone();
        // Goes on looking for as long as somebody reads.
        let looking = async move {
            loop {
                sleep(LOOK_EVERY).await;
                reporting.look().await;
            }
        };
        Ok(Response::new(Box::pin(changes.take_until(looking))))
    }
}

async fn set(reporter: &HealthReporter, is_serving: bool) {
    let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", IDEMPOTENCY, ADMIN] {
        reporter.set_service_status(service, status).await;
    }
}
