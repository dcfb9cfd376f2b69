//! gRPC health: NOT_SERVING while the store is away, and from the moment the end of the process is announced.

use std::sync::Arc;
use std::time::Duration;

use chassis::admin::Readiness;
use chassis::shutdown::Shutdown;
use chassis::tasks;
use idem_proto::idem::v1::admin_service_server::SERVICE_NAME as ADMIN;
use idem_proto::idem::v1::idempotency_service_server::SERVICE_NAME as IDEMPOTENCY;
use tokio::time::{sleep, timeout};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

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

/// Knows every service, and that none serves yet.
pub(crate) async fn reporter() -> HealthReporter {
    let reporter = HealthReporter::new();
    reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
    set(&reporter, false).await;
    reporter
}

/// Reports on every service until it is dropped.
pub(crate) async fn report(reporter: HealthReporter, store: Arc<dyn Store>, readiness: Readiness, shutdown: Shutdown) {
    loop {
        let answered = tasks::round("report health", timeout(PING_LIMIT, store.ping())).await;
        let is_serving = readiness.is_ready() && matches!(answered, Some(Ok(Ok(()))));
        set(&reporter, is_serving && !shutdown.is_leaving()).await;
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = shutdown.draining() => {
                set(&reporter, false).await;
                // Nothing changes any more.
                return std::future::pending().await;
            }
        }
    }
}

async fn set(reporter: &HealthReporter, is_serving: bool) {
    let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", IDEMPOTENCY, ADMIN] {
        reporter.set_service_status(service, status).await;
    }
}
