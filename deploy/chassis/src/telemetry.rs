//! Logs, traces and metrics of the process.
//!
//! One global of each, installed by whoever comes first: several services may run in one process.

mod export;
mod format;
mod recorder;

pub use recorder::render_metrics;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::{
    io::{self, IsTerminal},
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};
use tracing::{Metadata, Subscriber, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{self, FilterExt},
    fmt,
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Sends what is still buffered when it is dropped. Only the first guard of a process does something.
#[must_use = "what is buffered is lost when the process ends without dropping the guard"]
#[derive(Debug)]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

/// How long the end of a process waits for the collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The provider of this process, once there is one.
static PROVIDER: Mutex<Option<SdkTracerProvider>> = Mutex::new(None);

/// Installs logs, traces and metrics for the process; later calls change nothing, so the first service names it.
///
/// Logs go to stderr, for people on a terminal and as JSON lines otherwise, filtered by `RUST_LOG` (default `info`). Traces
/// are exported over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, by a thread of
/// their own: no request waits for a collector, and spans are dropped rather than queued without end. Without an endpoint
/// nothing is exported, but trace ids exist all the same. Call inside a runtime.
pub fn init(service_name: &'static str) -> Guard {
    recorder::install();
    let mut installed = PROVIDER.lock().expect("nothing panics while it holds this lock");
    if installed.is_some() {
        return Guard { provider: None };
    }
    let (provider, refused) = export::tracer_provider(service_name);
    *installed = Some(provider.clone());
    drop(installed);
    let spans = span_layer(provider.tracer(service_name));
    let registry = tracing_subscriber::registry().with(spans);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = filter.and(filter::filter_fn(|metadata| !tells_secrets(metadata)));
    // A test may have installed a subscriber of its own; then it stays.
    let _ = if io::stderr().is_terminal() {
        // People read events; what a span knows is in the trace.
        let events = filter.and(filter::filter_fn(|metadata| metadata.is_event()));
        registry.with(fmt::layer().with_writer(io::stderr).with_filter(events)).try_init()
    } else {
        let lines = fmt::layer().event_format(format::JsonLines).fmt_fields(format::NoFields);
        registry.with(lines.with_writer(io::stderr).with_filter(filter)).try_init()
    };
    if let Some(error) = refused {
        tracing::error!(error = %crate::process::sentence(&error), "traces are not exported");
    }
    Guard { provider: Some(provider) }
}

/// Below warnings the Postgres client prints the parameters of every statement, keys and answers among them, and HTTP/2 the headers of
/// every request: whatever `RUST_LOG` asks for, these are not logged.
fn tells_secrets(metadata: &Metadata<'_>) -> bool {
    let talkative = ["tokio_postgres", "postgres", "h2", "hyper", "rustls"];
    let library = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() > LevelFilter::WARN && talkative.contains(&library)
}

/// Turns `tracing` spans into OpenTelemetry spans, whatever `RUST_LOG` says: trace ids must not depend on verbosity.
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
        if !matches!(flushed.recv_timeout(FLUSH_LIMIT), Ok(Ok(()))) {
            tracing::warn!("the last traces could not be exported");
        }
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
