//! Logs, traces and metrics of the process.
//!
//! One global of each, installed by whoever comes first: several services may run in one process.

mod environment;
mod export;
mod families;
mod format;
mod hearing;
mod lines;
mod observers;
mod push;
mod recorder;

pub(crate) use observers::observe;
pub use observers::{Observation, observe_with};
pub use recorder::render_metrics;

use lines::Lines;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use push::Push;
use std::{
    io::{self, IsTerminal},
    sync::{Mutex, OnceLock, mpsc},
    thread,
    time::Duration,
};
use tracing::{Metadata, Subscriber, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{self, FilterExt},
    fmt::{self, writer::BoxMakeWriter},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Sends what is still buffered when it is dropped. Only the first guard of a process does something.
#[must_use = "what is buffered is lost when the process ends without dropping the guard"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
    push: Option<Push>,
}

/// How long the end of a process waits for the collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The provider of this process, once there is one.
static PROVIDER: Mutex<Option<SdkTracerProvider>> = Mutex::new(None);

/// Where this process's log lines go, when they do not go straight to a terminal.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Waits until what is logged is written, no longer than `limit`: for those who end the process.
pub(crate) fn flush_log(limit: Duration) {
    if let Some(lines) = LINES.get() {
        lines.flush(limit);
    }
}

/// Installs logs, traces and metrics for the process; later calls change nothing, so the first service names it.
///
/// Logs go to stderr, for people on a terminal and as JSON lines otherwise, filtered by `RUST_LOG` (default `info`). Traces and
/// metrics are exported over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` (or the one of a signal) is set, each by a thread of its own:
/// no request waits for a collector, or for whoever reads the log, and spans and lines are dropped rather than queued without
/// end. Without an endpoint nothing is exported, but trace ids exist all the same. Call inside a runtime.
pub fn init(service_name: &'static str) -> Guard {
    recorder::install();
    let mut installed = PROVIDER.lock().expect("nothing panics while it holds this lock");
    if installed.is_some() {
        return Guard { provider: None, push: None };
    }
    let (provider, refused) = export::tracer_provider(service_name);
    *installed = Some(provider.clone());
    drop(installed);
    let spans = span_layer(provider.tracer(service_name));
    let registry = tracing_subscriber::registry().with(spans);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = filter.and(filter::filter_fn(|metadata| !tells_secrets(metadata)));
    // A test may have installed a subscriber of its own; then it stays.
    let is_watched = io::stderr().is_terminal();
    let lines = if is_watched { None } else { Lines::to(io::stderr()).ok() };
    if let Some(lines) = &lines {
        let _ = LINES.set(lines.clone());
    }
    let _ = if is_watched {
        // People read events; what a span knows is in the trace.
        let events = filter.and(filter::filter_fn(|metadata| metadata.is_event()));
        registry.with(fmt::layer().with_writer(io::stderr).with_filter(events)).try_init()
    } else {
        let layer = fmt::layer().event_format(format::JsonLines).fmt_fields(format::NoFields);
        let writer = lines.map_or_else(|| BoxMakeWriter::new(io::stderr), BoxMakeWriter::new);
        registry.with(layer.with_writer(writer).with_filter(filter)).try_init()
    };
    if let Some(error) = refused {
        tracing::error!(error = %crate::process::sentence(&error), "traces are not exported");
    }
    let push = push::start(service_name).unwrap_or_else(|error| {
        tracing::error!(error = %crate::process::sentence(&*error), "metrics are not exported");
        None
    });
    Guard { provider: Some(provider), push }
}

/// Below warnings the Postgres client prints the parameters of every statement, keys and answers among them, and HTTP/2 the headers of
/// every request: whatever `RUST_LOG` asks for, these are not logged.
fn tells_secrets(metadata: &Metadata<'_>) -> bool {
    let talkative = ["tokio_postgres", "postgres", "h2", "hyper", "rustls"];
    let library = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() > LevelFilter::WARN && talkative.contains(&library)
}

/// Turns `tracing` spans into OpenTelemetry spans, whatever `RUST_LOG` says: trace ids must not depend on verbosity. Numbers on spans are
/// `i64`: the bridge knows no other integers, and would hand them on as text.
pub(crate) fn span_layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    // Code locations, threads and busy times cost more than they tell.
    let layer = OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false);
    let wanted = filter::filter_fn(|metadata| {
        *metadata.level() <= if metadata.is_span() { LevelFilter::INFO } else { LevelFilter::WARN }
    });
    layer.with_filter(wanted)
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(provider) = self.provider.take() else {
            return;
        };
        // A collector that does not answer must not keep the process: the exporter would wait for longer than that.
        let (done, flushed) = mpsc::channel();
        thread::spawn(move || done.send(provider.force_flush()));
        if self.push.take().is_some_and(|push| !push.finish(FLUSH_LIMIT)) {
            tracing::warn!("the last metrics could not be exported");
        }
        if !matches!(flushed.recv_timeout(FLUSH_LIMIT), Ok(Ok(()))) {
            tracing::warn!("the last traces could not be exported");
        }
        flush_log(FLUSH_LIMIT);
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("is_first", &self.provider.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_inits_are_one() {
        let first = init("one");
        let second = init("two");
        assert!(second.provider.is_none());
        let id = tracing::info_span!("request").in_scope(crate::trace::current_traceparent);
        // Another test of this process may have come first with a subscriber of its own thread only.
        assert!(id.is_some_and(|id| id.starts_with("00-")));
        drop(first);
    }

    #[tokio::test]
    async fn metrics_of_both_services_are_in_one_page() {
        let _guard = init("one");
        metrics::histogram!("telemetry_test_seconds").record(0.003);
        let page = render_metrics();
        assert!(page.contains("telemetry_test_seconds_bucket{le=\"0.005\"} 1"), "{page}");
        assert!(page.contains("telemetry_test_seconds_count 1"), "{page}");
    }
}
