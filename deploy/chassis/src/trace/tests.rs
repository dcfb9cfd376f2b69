//! The layers against an exporter in memory.

use super::*;
use axum::{Router, body::Body, routing::get};
use http::{HeaderMap, Request, Response, StatusCode};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::convert::Infallible;
use tower::{Layer, ServiceExt, service_fn};
use tracing::{info_span, subscriber::DefaultGuard};
use tracing_subscriber::prelude::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Everything that ends while it is held is exported to memory.
struct Collector {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _default: DefaultGuard,
}

impl Collector {
    fn start() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = crate::telemetry::span_layer(provider.tracer("test"));
        let default = tracing_subscriber::registry().with(layer).set_default();
        Self { exporter, _provider: provider, _default: default }
    }

    fn spans(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    fn only(&self) -> SpanData {
        let [span] = self.spans().try_into().unwrap();
        span
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|kv| kv.key.as_str() == key).map(|kv| kv.value.to_string())
}

fn request(path: &str, traceparent: Option<&str>) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if let Some(traceparent) = traceparent {
        request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
    }
    request
}

fn routes() -> Router {
    Router::new()
        .route("/v1/orders/{id}", get(|| async { current_trace_id() }))
        .route("/broken", get(|| async { StatusCode::BAD_GATEWAY }))
        .route("/stuck", get(std::future::pending::<()>))
        .layer(HttpServerLayer)
}

#[tokio::test]
async fn http_request_continues_the_trace_and_tells_nothing_secret() {
    let collector = Collector::start();
    let mut request = request("/v1/orders/17?card=4242", Some(PARENT));
    request.headers_mut().insert("authorization", "Bearer sk_secret".parse().unwrap());
    let response = routes().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
    assert_eq!(body, TRACE_ID);
    let span = collector.only();
    assert_eq!(span.name, "GET /v1/orders/{id}");
    assert_eq!(span.span_context.trace_id().to_string(), TRACE_ID);
    assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(attribute(&span, "http.response.status_code").as_deref(), Some("200"));
    let shown = format!("{span:?}");
    assert!(!shown.contains("4242") && !shown.contains("sk_secret") && !shown.contains("/17"), "{shown}");
}

#[tokio::test]
async fn http_request_without_a_valid_parent_starts_a_trace() {
    let collector = Collector::start();
    let outer = info_span!("accept loop");
    let _entered = outer.enter();
    routes().oneshot(request("/broken", Some("00-nonsense"))).await.unwrap();
    let span = collector.only();
    assert_eq!(span.parent_span_id.to_string(), "0000000000000000");
    assert!(span.span_context.is_valid());
    assert_eq!(span.status, opentelemetry::trace::Status::error(""));
}

#[tokio::test]
async fn unknown_paths_and_methods_do_not_become_names() {
    let collector = Collector::start();
    let mut request = request("/v2/anything", None);
    *request.method_mut() = "BREW".parse().unwrap();
    assert_eq!(routes().oneshot(request).await.unwrap().status(), 404);
    assert_eq!(collector.only().name, "OTHER");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_a_span() {
    let collector = Collector::start();
    let mut stuck = Box::pin(routes().oneshot(request("/stuck", Some(PARENT))));
    assert!(futures::poll!(&mut stuck).is_pending());
    drop(stuck);
    assert_eq!(attribute(&collector.only(), "client.gone").as_deref(), Some("true"));
}

#[tokio::test]
async fn rpc_continues_the_trace_through_client_and_server() {
    let collector = Collector::start();
    let server = GrpcServerLayer.layer(service_fn(|_: Request<Body>| async {
        let mut response = Response::new(current_trace_id());
        response.headers_mut().insert("grpc-status", "14".parse().unwrap());
        Ok::<_, Infallible>(response)
    }));
    let client = GrpcClientLayer.layer(server);
    let caller = info_span!("caller");
    set_parent_from(&caller, request("/", Some(PARENT)).headers());
    let call = caller.in_scope(|| client.oneshot(request("/idem.v1.IdempotencyService/Reserve", None)));
    let response = tracing::Instrument::instrument(call, caller).await.unwrap();
    assert_eq!(response.into_body(), TRACE_ID);
    let [server, client, caller] = collector.spans().try_into().unwrap();
    assert_eq!(
        (server.name.as_ref(), client.name.as_ref()),
        ("rpc IdempotencyService/Reserve", "rpc IdempotencyService/Reserve")
    );
    assert_eq!(server.parent_span_id, client.span_context.span_id());
    assert_eq!(client.parent_span_id, caller.span_context.span_id());
    assert_eq!(attribute(&server, "rpc.grpc.status_code").as_deref(), Some("14"));
    assert_eq!(server.status, opentelemetry::trace::Status::error(""));
}

#[tokio::test]
async fn replay_links_to_the_original_trace() {
    let collector = Collector::start();
    info_span!("replay").in_scope(|| link_to(PARENT));
    let span = collector.only();
    let [link] = span.links.links.as_slice() else { panic!("{:?}", span.links) };
    assert_eq!(link.span_context.trace_id().to_string(), TRACE_ID);
}

#[tokio::test]
async fn traceparent_and_tracestate_make_the_round_trip() {
    let _collector = Collector::start();
    let mut incoming = HeaderMap::new();
    incoming.insert("traceparent", PARENT.parse().unwrap());
    incoming.append("tracestate", "a=1".parse().unwrap());
    incoming.append("tracestate", "b=2".parse().unwrap());
    let span = info_span!("hop");
    set_parent_from(&span, &incoming);
    let mut outgoing = HeaderMap::new();
    span.in_scope(|| inject(&mut outgoing));
    assert_eq!(outgoing["tracestate"], "a=1,b=2");
    let sent = outgoing["traceparent"].to_str().unwrap();
    assert!(sent.starts_with(&format!("00-{TRACE_ID}-")) && sent.ends_with("-01") && sent != PARENT, "{sent}");
    span.in_scope(|| {
        assert_eq!(current_traceparent().as_deref(), Some(sent));
        let intercepted = tonic::service::Interceptor::call(&mut ClientInterceptor, tonic::Request::new(())).unwrap();
        assert_eq!(intercepted.metadata().get("traceparent").unwrap(), sent);
    });
}

#[tokio::test]
async fn shared_work_is_in_the_trace_of_one_and_linked_both_ways_with_the_others() {
    let collector = Collector::start();
    let (first, second) = (info_span!(parent: None, "first"), info_span!(parent: None, "second"));
    let aboard = [first.clone(), second.clone()];
    let host = host_of(aboard.iter());
    let shared = info_span!(parent: host.clone(), "shared");
    connect(&shared, aboard.iter(), host.as_ref());
    drop((shared, first, second, aboard));
    let spans = collector.spans();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (shared, first, second) = (named("shared"), named("first"), named("second"));
    assert_eq!(shared.parent_span_id, first.span_context.span_id());
    assert!(first.links.links.is_empty());
    assert_eq!(shared.links.links[0].span_context.span_id(), second.span_context.span_id());
    assert_eq!(second.links.links[0].span_context.span_id(), shared.span_context.span_id());
}

#[tokio::test]
async fn what_is_noted_of_an_answer_is_on_the_span_of_its_server() {
    let collector = Collector::start();
    let noted = || async { (axum::Extension(Note { attribute: "idem.outcome", outcome: "replayed" }), "") };
    let routes = Router::new().route("/", get(noted)).layer(HttpServerLayer);
    routes.oneshot(request("/", None)).await.unwrap();
    assert_eq!(attribute(&collector.only(), "idem.outcome").as_deref(), Some("replayed"));
}
