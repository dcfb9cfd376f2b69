//! The one metrics recorder.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{sync::OnceLock, thread, time::Duration};

/// From half a millisecond (a replay) to the longest upstream timeout anybody sets.
const SECONDS: [f64; 15] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Of what travels together: from one to the most that a call or a statement takes.
const ITEMS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 500.0];

/// Samples wait in memory, a few dozen bytes each, until they are folded into buckets; without a scraper nobody else would do it. A
/// process that is asleep should be woken seldom.
const FOLD_EVERY: Duration = Duration::from_secs(30);

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Everything that was counted, as Prometheus text.
pub fn render_metrics() -> String {
    install().render()
}

/// Installs the recorder unless it is there.
pub(super) fn install() -> &'static PrometheusHandle {
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_items".to_owned()), &ITEMS))
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &ITEMS))
            .expect("the buckets are not empty");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed: /metrics stays empty");
        }
        fold_regularly(handle.clone());
        handle
    })
}

/// A thread, not a task: the recorder may outlive the runtime that was there when it was installed.
fn fold_regularly(handle: PrometheusHandle) {
    let fold = move || {
        loop {
            thread::sleep(FOLD_EVERY);
            handle.run_upkeep();
        }
    };
    if let Err(error) = thread::Builder::new().name("metrics".to_owned()).spawn(fold) {
        tracing::warn!(%error, "metrics are folded only when they are scraped");
    }
}
