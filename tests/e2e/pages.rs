//! What a person reads: the API description, the policy, and every error.

use e2e::{Store, World};
use http::Method;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_are_there_for_everybody() {
    let world = World::start(Store::Sqlite).await;
    let page = |path: &'static str| world.ask(Method::GET, path).api_key("").send();
    let openapi = page("/openapi.json").await.expect(200).json();
    assert!(openapi["openapi"].as_str().unwrap().starts_with("3."));
    for (path, method) in [
        ("/v1/ticket-types/{id}", "put"),
        ("/v1/ticket-types/{id}", "get"),
        ("/v1/orders", "post"),
        ("/v1/orders/{id}", "get"),
        ("/v1/payments", "post"),
        ("/v1/payments/{id}", "get"),
        ("/v1/orders/{id}/confirm", "post"),
        ("/v1/orders/{id}/cancel", "post"),
        ("/v1/tickets/{id}/check-in", "post"),
        ("/v1/orders/{id}/payment-link", "post"),
        ("/v1/idempotency-keys/{key}", "get"),
        ("/webhooks/acquirer", "post"),
    ] {
        assert!(openapi["paths"][path][method]["responses"].is_object(), "{method} {path}");
    }
    assert!(openapi.to_string().contains("Idempotent-Replayed"));
    let errors = page("/docs/errors").await.expect(200);
    let errors = String::from_utf8(errors.body.to_vec()).unwrap();
    for error in [
        "missing_idempotency_key",
        "invalid_idempotency_key",
        "invalid_request",
        "unauthorized",
        "forbidden",
        "payment_declined",
        "not_found",
        "method_not_allowed",
        "payload_too_large",
        "unsupported_media_type",
        "conflict",
        "sold_out",
        "hold_expired",
        "idempotency_key_reuse",
        "rate_limited",
        "idempotency_unavailable",
        "upstream_unavailable",
    ] {
        assert!(errors.contains(&format!("id=\"{error}\"")), "an anchor for {error}");
    }
    for path in ["/docs", "/docs/idempotency", "/docs/errors"] {
        let page = page(path).await.expect(200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"));
    }
    let health = |path: &'static str| {
        let url = format!("http://{}{path}", world.addresses().gateway_admin);
        let request = world.http().get(url);
        async move { e2e::Reply::read(request.send().await.unwrap()).await }
    };
    health("/healthz").await.expect(200);
    health("/readyz").await.expect(200);
    let metrics = health("/metrics").await.expect(200);
    assert!(!metrics.body.is_empty());
    world.stop().await;
}
