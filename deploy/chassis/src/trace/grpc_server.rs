//! A span for every RPC that is served.

use super::{
    context::set_parent_from,
    http_server::milliseconds,
    record::{Outcome, ResponseFuture, noted},
};
use http::{Request, Response, Uri};
use std::task::{Context, Poll};
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Span, field::Empty, info, info_span};

/// Makes one server span per RPC, named `rpc Service/Method`, that continues the `traceparent` in the metadata.
///
/// Counts `rpc_server_duration_seconds` by service, method and code, and `rpc_server_client_gone_total` for calls that
/// nobody waited for. Each call leaves one line in the log, target `access`; those of health checks and reflection at level debug.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrpcServerLayer;

/// Made by [`GrpcServerLayer`].
#[derive(Debug, Clone)]
pub struct GrpcServerService<S> {
    inner: S,
}

/// The path of an RPC, `/package.Service/Method`.
#[derive(Debug)]
pub struct GrpcOutcome {
    uri: Uri,
}

impl<S> Layer<S> for GrpcServerLayer {
    type Service = GrpcServerService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcServerService { inner }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for GrpcServerService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, GrpcOutcome>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let outcome = GrpcOutcome { uri: request.uri().clone() };
        let span = outcome.span();
        set_parent_from(&span, request.headers());
        let inner = span.in_scope(|| self.inner.call(request));
        ResponseFuture::new(inner, span, outcome)
    }
}

// === impl GrpcOutcome ===

impl GrpcOutcome {
    fn span(&self) -> Span {
        let (service, method) = split(self.uri.path());
        // A root on purpose: what it belongs to is said by the caller's traceparent, not by the task that accepted it.
        info_span!(
            parent: None,
            "rpc",
            otel.name = format_args!("rpc {}/{method}", short(service)),
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            rpc.grpc.status_code = Empty,
            error.type = Empty,
            client.gone = Empty,
        )
    }
}

impl Outcome for GrpcOutcome {
    fn record<B>(&self, span: &Span, response: &Response<B>, seconds: f64) {
        // A refusal comes without a body, its status in the headers; anything else is on its way to being OK.
        let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
        span.record("rpc.grpc.status_code", code as i64);
        if is_our_fault(code) {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", name_of(code));
        }
        let (outcome, milliseconds) = (noted(span, response), milliseconds(seconds));
        let (service, method) = split(self.uri.path());
        if is_housekeeping(service) {
            tracing::debug!(target: "access", service, method, code = name_of(code), milliseconds, "answered");
        } else {
            info!(target: "access", service, method, code = name_of(code), outcome, milliseconds, "answered");
        }
        let (service, method) = match code {
            // Paths are the caller's text; only those that exist, and are let in, become names of metrics.
            Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied => ("refused", "refused"),
            _ => split(self.uri.path()),
        };
        let (service, method) = (service.to_owned(), method.to_owned());
        metrics::histogram!(
            "rpc_server_duration_seconds", "service" => service, "method" => method, "code" => name_of(code)
        )
        .record(seconds);
    }

    fn record_gone(&self, seconds: f64) {
        let ((service, method), milliseconds) = (split(self.uri.path()), milliseconds(seconds));
        if !is_housekeeping(service) {
            info!(target: "access", service, method, client_gone = true, milliseconds, "the caller went away");
        }
        metrics::counter!("rpc_server_client_gone_total").increment(1);
    }
}

/// Balancers ask all the time, and a watched health never ends.
fn is_housekeeping(service: &str) -> bool {
    service.starts_with("grpc.")
}

/// Splits `/idem.v1.IdempotencyService/Reserve` into service and method.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').split_once('/').unwrap_or((path, ""))
}

/// The service without its package.
pub(super) fn short(service: &str) -> &str {
    service.rsplit('.').next().unwrap_or(service)
}

/// The codes that OpenTelemetry counts as errors of a server.
fn is_our_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
