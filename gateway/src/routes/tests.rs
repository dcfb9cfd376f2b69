//! What the router decides by itself: neither service behind it is there.

use super::*;
use crate::{
    auth::{ApiKeyEntry, ApiKeySecret},
    error::catalogue,
    recovery::Recovery,
};
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use idem_core::{LEASE_DEFAULT, RETENTION_DEFAULT};
use idem_layer::{Hooks, Settings};
use std::{collections::BTreeSet, time::Duration};
use tower::ServiceExt as _;

const ID: &str = "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11";
const CANCEL: &str = "/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/cancel";
const KEY: (&str, &str) = ("authorization", "Bearer sk_a");
const OPERATOR: (&str, &str) = ("authorization", "Bearer sk_ops");

fn router() -> Router {
    let entry = |key: &str, operator| ApiKeyEntry {
        tenant: "a".to_owned(),
        secret: ApiKeySecret::Key(key.to_owned()),
        operator,
        expires_at: None,
    };
    // Nobody listens on the port of the discard protocol.
    let nobody: chassis::flags::Endpoint = "http://127.0.0.1:9".parse().unwrap();
    let upstream_timeout = Duration::from_secs(5);
    let orders = Orders::new(&nobody, None, None, upstream_timeout).unwrap();
    let idem = IdemClient::connect_lazy(nobody.to_string(), None).unwrap();
    let work = chassis::tasks::Tasks::new();
    let hooks = Hooks::new(move |operation| drop(work.spawn("operation", operation)));
    let settings = Settings::new(LEASE_DEFAULT, RETENTION_DEFAULT, upstream_timeout, hooks);
    super::router(super::Parts {
        api_keys: ApiKeys::from_entries([entry("sk_a", false), entry("sk_ops", true)]).unwrap(),
        limiter: None,
        cors_origins: vec!["https://shop.example".parse().unwrap()],
        idempotency: Idempotency::new(settings, idem.clone(), Recovery::new(orders.clone())),
        orders,
        idem,
    })
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn send(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("host", "shop.example");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = router().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

impl Answer {
    /// Checks that it is a problem as documented, and gives its name.
    fn problem(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{:?}", self.body);
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        let error = problem["error"].as_str().unwrap().to_owned();
        let known = catalogue::ALL.iter().find(|kind| kind.error == error && kind.code == problem["code"].as_str());
        let known = known.unwrap_or_else(|| panic!("{problem} is not in the catalogue"));
        assert_eq!(problem["type"], format!("/docs/errors#{error}"));
        assert_eq!((problem["status"].as_u64(), self.status.as_u16()), (Some(known.status.into()), known.status));
        assert_eq!((&problem["title"], &problem["retryable"]), (&known.title.into(), &known.retryable.into()));
        assert!(problem["detail"].is_string() && problem["details"]["reason"].is_string());
        assert_eq!(problem["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(self.headers.contains_key("retry-after"), known.retryable, "{problem}");
        error
    }
}

fn concrete(path: &str) -> String {
    path.replace("{id}", ID).replace("{key}", "k")
}

/// Path and methods of every operation in the API description.
fn described() -> Vec<(String, BTreeSet<String>)> {
    let document: serde_json::Value = serde_json::from_str(pages::OPENAPI).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let methods = |item: &serde_json::Value| item.as_object().unwrap().keys().map(|m| m.to_uppercase()).collect();
    paths.map(|(path, item)| (path.clone(), methods(item))).collect()
}

#[tokio::test]
async fn pages_can_be_neither_framed_nor_sniffed_and_load_nothing() {
    for path in ["/docs", "/docs/idempotency", "/docs/errors"] {
        let page = send("GET", path, &[], "").await;
        let header = |name: &str| page.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!((header("x-content-type-options"), header("x-frame-options")), ("nosniff", "DENY"));
        assert_eq!((header("referrer-policy"), header("cross-origin-opener-policy")), ("no-referrer", "same-origin"));
        assert_eq!(header("strict-transport-security"), "max-age=31536000");
    }
    let description = send("GET", "/openapi.json", &[], "").await;
    assert_eq!(description.headers["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn description_lists_exactly_the_served_methods() {
    for (path, methods) in described() {
        for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::PATCH] {
            let answer = send(method.as_str(), &concrete(&path), &[OPERATOR], "").await;
            let is_served = answer.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(is_served, methods.contains(method.as_str()), "{method} {path}");
            if !is_served {
                assert_eq!(answer.problem(), "method_not_allowed");
                let allow = answer.headers["allow"].to_str().unwrap().split(',').map(|m| m.trim().to_owned());
                let allowed: BTreeSet<String> = allow.filter(|m| m != "HEAD").collect();
                assert_eq!(allowed, methods, "{path}");
            }
        }
    }
}

#[test]
fn description_lists_exactly_the_served_paths() {
    let sources = [
        include_str!("../routes.rs"),
        include_str!("keys.rs"),
        include_str!("webhooks.rs"),
        include_str!("../pages.rs"),
    ];
    let served = sources.iter().flat_map(|source| source.split(".route(\"").skip(1));
    let served: BTreeSet<String> = served.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    let mut listed: BTreeSet<String> = described().into_iter().map(|(path, _)| path).collect();
    listed.extend(["/v1", "/v1/", "/v1/{*rest}"].map(str::to_owned));
    assert_eq!(served, listed);
}

#[tokio::test]
async fn everything_under_v1_needs_an_api_key_and_nothing_else_does() {
    for (path, methods) in described() {
        for method in methods {
            let answer = send(&method, &concrete(&path), &[], "").await;
            if path.starts_with("/v1/") {
                assert_eq!(answer.problem(), "unauthorized", "{method} {path}");
                assert_eq!(answer.headers["www-authenticate"], "Bearer");
            } else {
                assert_ne!(answer.status, 401, "{method} {path}");
            }
        }
    }
    for path in ["/v1", "/v1/", "/v1/nothing", "/v1/orders/1/2/3"] {
        assert_eq!(send("GET", path, &[], "").await.problem(), "unauthorized", "{path}");
        assert_eq!(send("GET", path, &[KEY], "").await.problem(), "not_found", "{path}");
    }
    assert_eq!(send("DELETE", "/v1/orders", &[], "").await.problem(), "unauthorized");
    assert_eq!(send("POST", "/v1/orders", &[("authorization", "Bearer sk_wrong")], "").await.problem(), "unauthorized");
    assert_eq!(send("GET", "/nothing", &[], "").await.problem(), "not_found");
}

#[tokio::test]
async fn only_operators_change_ticket_types() {
    let path = "/v1/ticket-types/general";
    assert_eq!(send("PUT", path, &[KEY], "not json").await.problem(), "forbidden");
    assert_eq!(send("PUT", path, &[OPERATOR], "not json").await.problem(), "invalid_request");
    let body = r#"{"venueId":"demo","name":"General","price":{"amount":1000,"currency":"EUR"},"capacity":100}"#;
    assert_eq!(send("PUT", path, &[OPERATOR], body).await.problem(), "upstream_unavailable");
    assert_eq!(send("GET", path, &[KEY], "").await.problem(), "upstream_unavailable");
}

#[tokio::test]
async fn requests_that_can_never_succeed_are_refused_before_their_key_is_reserved() {
    let order = r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2}]}"#;
    let keyed = |key: &'static str| [KEY, ("idempotency-key", key)];
    let large = format!("{}{}", " ".repeat(256 * 1024), order);
    type Case<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c str, &'c str);
    let table: [Case<'_>; 16] = [
        ("/v1/orders", &[KEY], order, "missing_idempotency_key"),
        ("/v1/payments", &[KEY], order, "missing_idempotency_key"),
        ("/v1/orders", &keyed("\"k"), order, "invalid_idempotency_key"),
        ("/v1/orders", &keyed(""), order, "invalid_idempotency_key"),
        ("/v1/orders", &[KEY, ("idempotency-key", "k"), ("idempotency-key", "k")], order, "invalid_idempotency_key"),
        ("/v1/orders", &keyed("k"), "{", "invalid_request"),
        ("/v1/orders", &keyed("k"), "{}", "invalid_request"),
        ("/v1/payments", &keyed("k"), order, "invalid_request"),
        ("/v1/orders", &keyed("k"), &large, "payload_too_large"),
        (
            "/v1/orders",
            &[KEY, ("idempotency-key", "k"), ("content-type", "text/plain")],
            order,
            "unsupported_media_type",
        ),
        ("/v1/orders", &[KEY, ("idempotency-key", "k"), ("content-encoding", "br")], order, "unsupported_media_type"),
        ("/v1/orders/x/confirm", &keyed("a\tb"), "", "invalid_idempotency_key"),
        (CANCEL, &keyed("k"), r#"{"why":1}"#, "invalid_request"),
        ("/v1/orders/x/cancel", &keyed("k"), "", "not_found"),
        ("/v1/tickets/x/check-in", &keyed("k"), "{}", "not_found"),
        ("/v1/payments", &keyed("k"), r#"{"orderId":"x","paymentMethod":"pm_approved"}"#, "not_found"),
    ];
    for (path, headers, body, error) in table {
        assert_eq!(send("POST", path, headers, body.to_owned()).await.problem(), error, "{path} {body:.40}");
    }
}

#[tokio::test(start_paused = true)]
async fn keyed_requests_are_refused_without_the_idempotency_service_and_others_are_not() {
    let answer = send("POST", CANCEL, &[KEY, ("idempotency-key", "k")], "").await;
    assert_eq!(answer.problem(), "idempotency_unavailable");
    assert_eq!(answer.headers["idempotency-key"], "k");
    // Without a key it goes on to the orders service, which is not there either.
    let answer = send("POST", CANCEL, &[KEY], "").await;
    assert_eq!(answer.problem(), "upstream_unavailable");
    assert!(std::str::from_utf8(&answer.body).unwrap().contains("nothing_happened"));
    let answer = send("GET", "/v1/idempotency-keys/k", &[KEY], "").await;
    assert_eq!(answer.problem(), "idempotency_unavailable");
}

#[tokio::test]
async fn what_cannot_be_an_id_or_a_key_is_not_found() {
    let long = format!("/v1/idempotency-keys/{}", "k".repeat(201));
    for (method, path) in [
        ("GET", "/v1/orders/nope"),
        ("GET", "/v1/payments/%ff"),
        ("POST", "/v1/orders/1/confirm"),
        ("POST", "/v1/orders/1/payment-link"),
        ("POST", "/v1/tickets/%7B7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11%7D/check-in"),
        ("GET", "/v1/ticket-types/%ff"),
        ("GET", "/v1/idempotency-keys/a%00b"),
        ("GET", &long),
    ] {
        assert_eq!(send(method, path, &[KEY], "").await.problem(), "not_found", "{method} {path}");
    }
}

#[tokio::test]
async fn preflights_need_no_api_key_and_only_listed_origins_are_allowed() {
    let preflight = |origin: &'static str| async move {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "idempotency-key,authorization,content-type,prefer,traceparent"),
        ];
        send("OPTIONS", "/v1/orders", &headers, "").await
    };
    let answer = preflight("https://shop.example").await;
    assert!(answer.status.is_success(), "{}", answer.status);
    assert_eq!(answer.headers["access-control-allow-origin"], "https://shop.example");
    let list = |name: &str| answer.headers[name].to_str().unwrap().to_lowercase();
    for name in ["idempotency-key", "authorization", "content-type", "prefer", "traceparent"] {
        assert!(list("access-control-allow-headers").contains(name), "{name}");
    }
    assert!(list("access-control-allow-methods").contains("post"));
    assert!(!preflight("https://evil.example").await.headers.contains_key("access-control-allow-origin"));

    // Refusals too can be read by the page.
    let answer = send("POST", "/v1/orders", &[("origin", "https://shop.example")], "").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.headers["access-control-allow-origin"], "https://shop.example");
    let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap().to_lowercase();
    for name in [
        "idempotency-key",
        "idempotent-replayed",
        "idempotency-key-expires",
        "retry-after",
        "preference-applied",
        "location",
        "link",
    ] {
        assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{name}");
    }
}

#[tokio::test]
async fn a_message_that_can_be_read_in_two_ways_is_refused_whatever_it_asks() {
    for (path, lines) in [
        ("/docs", vec![]),
        ("/nothing", vec![("host", "a"), ("host", "b")]),
        ("/v1/orders", vec![("host", "a"), ("transfer-encoding", "gzip, chunked")]),
        ("/webhooks/acquirer", vec![("host", "a"), ("transfer-encoding", "chunked"), ("content-length", "2")]),
    ] {
        let request = Request::builder().method("POST").uri(path);
        let request = lines.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = router().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        assert_eq!(answer.problem(), "invalid_request", "{path}");
        assert_eq!(answer.headers["connection"], "close", "{path}");
    }
}

#[tokio::test]
async fn pages_are_readable_and_load_nothing() {
    for path in ["/docs", "/docs/idempotency", "/docs/errors"] {
        let answer = send("GET", path, &[], "").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["content-type"]),
            (200, &"text/html; charset=utf-8".parse().unwrap())
        );
        assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    let answer = send("GET", "/openapi.json", &[], "").await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["openapi"], "3.1.0");
}

#[tokio::test]
async fn webhooks_are_bounded_and_answered_so_that_they_come_again() {
    let answer = send("POST", "/webhooks/acquirer", &[], vec![b' '; 256 * 1024 + 1]).await;
    assert_eq!(answer.problem(), "payload_too_large");
    let answer = send("POST", "/webhooks/acquirer", &[("acquirer-signature", "t=1,v1=00")], "{}").await;
    assert_eq!(answer.problem(), "upstream_unavailable");
}
