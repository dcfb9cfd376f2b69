//! Where spans go.

use super::{
    environment::{self, Protocol, Signal},
    hearing::{Heard, Hearing, Noting},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};

/// A provider that exports when an endpoint is configured, and why it does not when it should.
///
/// A wrong endpoint must not keep a service from serving, so it is reported, not returned as a failure.
pub(super) fn tracer_provider(service_name: &'static str) -> (SdkTracerProvider, Option<ExporterBuildError>) {
    let environment = environment::of_this_process();
    if !environment.is_exported(Signal::Traces) {
        return (silent(service_name), None);
    }
    // Endpoint, headers, timeout and compression are read by the builders, sampler and limits of the batch by the SDK.
    let exporter = match environment.protocol(Signal::Traces) {
        Protocol::HttpProtobuf => SpanExporter::builder().with_http().build(),
        Protocol::Grpc => SpanExporter::builder().with_tonic().build(),
        Protocol::Other => SpanExporter::builder().build(),
    };
    match exporter {
        Ok(exporter) => {
            let hearing = Hearing::new();
            let builder = SdkTracerProvider::builder()
                .with_resource(resource(service_name))
                .with_sampler(Heard::of_environment(hearing.clone()))
                .with_batch_exporter(Noting { exporter, hearing });
            (builder.build(), None)
        }
        Err(error) => (silent(service_name), Some(error)),
    }
}

/// Mints ids and hands contexts on, and records nothing unless a caller asked for it.
fn silent(service_name: &'static str) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_resource(resource(service_name))
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build()
}

/// What this process is to whoever collects. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over the name in the code.
pub(super) fn resource(service_name: &'static str) -> Resource {
    let builder = Resource::builder();
    if environment::of_this_process().names_service() {
        return builder.build();
    }
    builder.with_service_name(service_name).build()
}
