//! A span for every HTTP request.

use super::{
    context::set_parent_from,
    record::{Outcome, ResponseFuture, noted},
};
use axum::extract::MatchedPath;
use http::{Method, Request, Response};
use std::task::{Context, Poll};
use tower::{Layer, Service};
use tracing::{Span, field::Empty, info, info_span};

/// Makes one server span per request, named `METHOD route`, that continues the caller's `traceparent`.
///
/// Put it on with [`axum::Router::layer`] after the routes, so that the route is known. The span carries method, route and
/// status; never the query, keys, bodies or authorization. Counts `http_server_request_duration_seconds` by method, route
/// and status, and `http_server_client_gone_total` for requests that nobody waited for. Each request leaves one line in the log,
/// target `access`, with its outcome if one was [noted](super::Note).
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpServerLayer;

/// Made by [`HttpServerLayer`].
#[derive(Debug, Clone)]
pub struct HttpServerService<S> {
    inner: S,
}

/// Method and route of a request.
#[derive(Debug)]
pub struct HttpOutcome {
    method: &'static str,
    route: Option<MatchedPath>,
}

impl<S> Layer<S> for HttpServerLayer {
    type Service = HttpServerService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        HttpServerService { inner }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for HttpServerService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, HttpOutcome>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let outcome = HttpOutcome::of(&request);
        let span = outcome.span();
        set_parent_from(&span, request.headers());
        let inner = span.in_scope(|| self.inner.call(request));
        ResponseFuture::new(inner, span, outcome)
    }
}

// === impl HttpOutcome ===

impl HttpOutcome {
    fn of<B>(request: &Request<B>) -> Self {
        Self { method: known(request.method()), route: request.extensions().get::<MatchedPath>().cloned() }
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or("", MatchedPath::as_str)
    }

    fn span(&self) -> Span {
        let (method, route) = (self.method, self.route());
        // A root on purpose: what it belongs to is said by the caller's traceparent, not by the task that accepted it.
        info_span!(
            parent: None,
            "http request",
            otel.name = format_args!("{method}{}{route}", if route.is_empty() { "" } else { " " }),
            otel.kind = "server",
            otel.status_code = Empty,
            http.request.method = method,
            http.route = route,
            // Not the path: it may hold a key.
            url.scheme = "http",
            http.response.status_code = Empty,
            error.type = Empty,
            client.gone = Empty,
        )
    }
}

impl Outcome for HttpOutcome {
    fn record<B>(&self, span: &Span, response: &Response<B>, seconds: f64) {
        let status = response.status();
        span.record("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", status.as_str());
        }
        let outcome = noted(span, response);
        let (code, milliseconds) = (status.as_u16(), milliseconds(seconds));
        info!(target: "access", method = self.method, route = self.route(), status = code, outcome, milliseconds, "answered");
        let (route, status) = (self.route().to_owned(), status.as_str().to_owned());
        metrics::histogram!(
            "http_server_request_duration_seconds", "method" => self.method, "route" => route, "status" => status
        )
        .record(seconds);
    }

    fn record_gone(&self, seconds: f64) {
        let milliseconds = milliseconds(seconds);
        info!(target: "access", method = self.method, route = self.route(), client_gone = true, milliseconds, "the client went away");
        let route = self.route().to_owned();
        metrics::counter!("http_server_client_gone_total", "method" => self.method, "route" => route).increment(1);
    }
}

/// As people read it, to the microsecond.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

/// Methods are the caller's text; only those that exist become names of spans and metrics.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "OTHER",
    }
}
