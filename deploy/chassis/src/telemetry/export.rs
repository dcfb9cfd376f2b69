//! Where spans go.

use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use std::env;

/// A provider that exports when an endpoint is configured, and why it does not when it should.
///
/// A wrong endpoint must not keep a service from serving, so it is reported, not returned as a failure.
pub(super) fn tracer_provider(service_name: &'static str) -> (SdkTracerProvider, Option<ExporterBuildError>) {
    if !is_configured() {
        return (silent(service_name), None);
    }
    match exporter() {
        Ok(exporter) => {
            // Sampler and limits of the batch come from their OTEL_… variables.
            let provider = SdkTracerProvider::builder()
                .with_resource(resource(service_name))
                .with_batch_exporter(exporter)
                .build();
            (provider, None)
        }
        Err(error) => (silent(service_name), Some(error)),
    }
}

fn is_configured() -> bool {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.is_empty());
    let is_disabled = |name, value: &str| env::var(name).is_ok_and(|set| set.eq_ignore_ascii_case(value));
    (is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
        && !is_disabled("OTEL_SDK_DISABLED", "true")
        && !is_disabled("OTEL_TRACES_EXPORTER", "none")
}

/// The transport that `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL` or `OTEL_EXPORTER_OTLP_PROTOCOL` names; gRPC without either.
fn exporter() -> Result<SpanExporter, ExporterBuildError> {
    let named = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]
        .into_iter()
        .filter_map(|name| env::var(name).ok())
        .find(|value| !value.is_empty());
    match named.as_deref() {
        Some("http/protobuf") => SpanExporter::builder().with_http().build(),
        None | Some("grpc") => SpanExporter::builder().with_tonic().build(),
        Some(_) => SpanExporter::builder().build(),
    }
}

/// Mints ids and hands contexts on, and records nothing unless a caller asked for it.
fn silent(service_name: &'static str) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_resource(resource(service_name))
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build()
}

fn resource(service_name: &'static str) -> Resource {
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over the name in the code.
    match env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => Resource::builder().build(),
        _ => Resource::builder().with_service_name(service_name).build(),
    }
}
