//! Handing the trace on to the services that we call.

use super::{
    context::{TRACEPARENT, current_traceparent, inject},
    grpc_server::{short, split},
};
use http::{Request, Response};
use std::task::{Context, Poll};
use tonic::metadata::MetadataValue;
use tower::{Layer, Service};
use tracing::{Instrument, info_span, instrument::Instrumented};

/// Makes one client span per RPC, named `rpc Service/Method`, and sends it along in the metadata.
///
/// Goes around a `tonic::transport::Channel`; a client that is generic over its channel can use [`ClientInterceptor`]
/// instead, which makes no span of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrpcClientLayer;

/// Made by [`GrpcClientLayer`].
#[derive(Debug, Clone)]
pub struct GrpcClientService<S> {
    inner: S,
}

/// Sends the current span along in the metadata of every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientInterceptor;

impl<S> Layer<S> for GrpcClientLayer {
    type Service = GrpcClientService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcClientService { inner }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for GrpcClientService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let span = {
            let (service, method) = split(request.uri().path());
            info_span!(
                "rpc call",
                otel.name = format_args!("rpc {}/{method}", short(service)),
                otel.kind = "client",
                rpc.system = "grpc",
                rpc.service = service,
                rpc.method = method,
            )
        };
        let future = span.in_scope(|| {
            inject(request.headers_mut());
            self.inner.call(request)
        });
        future.instrument(span)
    }
}

impl tonic::service::Interceptor for ClientInterceptor {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(traceparent) = current_traceparent() {
            let value = MetadataValue::try_from(traceparent).expect("hexadecimal digits and dashes");
            request.metadata_mut().insert(TRACEPARENT, value);
        }
        Ok(request)
    }
}
