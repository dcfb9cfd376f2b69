//! The table of errors: each is a problem document that says what happened and whether a retry is safe.

use e2e::{Store, World};
use http::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_known_or_not_allowed_is_told_so() {
    let world = World::start(Store::Sqlite).await;
    let get = |key: &'static str| world.ask(Method::GET, "/v1/ticket-types/general").api_key(key).send();
    for key in ["", "sk_unknown", "sk_demo", "sk_demo_aa", "sk_demo_A"] {
        let refused = get(key).await.expect_problem(401, "unauthorized", None, false);
        assert!(refused.header("www-authenticate").is_some_and(|h| h.starts_with("Bearer")), "{key}");
    }
    for scheme in ["Basic sk_demo_a", "sk_demo_a", "Bearer"] {
        let ask = world.ask(Method::GET, "/v1/ticket-types/general").api_key("").header("authorization", scheme);
        ask.send().await.expect_problem(401, "unauthorized", None, false);
    }
    get("sk_demo_ops").await.expect(200);
    // Before anything else: also where nothing is.
    let nothing = world.ask(Method::POST, "/v1/nothing").api_key("").send().await;
    nothing.expect_problem(401, "unauthorized", None, false);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_or_not_allowed_on_it_is_a_problem_document() {
    let world = World::start(Store::Sqlite).await;
    world.get("/v1/nothing").await.expect_problem(404, "not_found", None, false);
    world.get("/nothing").await.expect_problem(404, "not_found", None, false);
    for (method, path) in [
        (Method::GET, "/v1/orders"),
        (Method::DELETE, "/v1/orders/5a1c0cbb-3b74-4e14-9a55-3f1a9c1f1a11"),
        (Method::PUT, "/v1/payments"),
        (Method::POST, "/v1/ticket-types/general"),
        (Method::GET, "/webhooks/acquirer"),
        (Method::POST, "/openapi.json"),
    ] {
        let refused = world.ask(method.clone(), path).send().await;
        let refused = refused.expect_problem(405, "method_not_allowed", None, false);
        assert!(refused.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_without_one_meaning_are_refused_and_the_key_stays_free() {
    let world = World::start(Store::Sqlite).await;
    let item = r#"{"ticketTypeId":"general","quantity":1}"#;
    let nested = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let deep = format!(r#"{{"venueId":{nested},"items":[{item}]}}"#);
    let bad: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"not json".to_vec(),
        b"{} {}".to_vec(),
        format!(r#"{{"venueId":"demo","venueId":"demo","items":[{item}]}}"#).into(),
        format!(r#"{{"venueId":"demo","venue\u0049d":"demo","items":[{item}]}}"#).into(),
        br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1,"quantity":1}]}"#.to_vec(),
        format!(r#"{{"venueId":"\ud800","items":[{item}]}}"#).into(),
        b"{\"venueId\":\"\xff\",\"items\":[]}".to_vec(),
        deep.into(),
        br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1e999999999}]}"#.to_vec(),
        br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":01}]}"#.to_vec(),
        br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1.0000000000000000000000001}]}"#.to_vec(),
        br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":true}]}"#.to_vec(),
        br#"{"venueid":"demo","items":[]}"#.to_vec(),
    ];
    for body in bad {
        let reply = world.ask(Method::POST, "/v1/orders").key("k1").bytes("application/json", body).send().await;
        let reply = reply.expect_problem(400, "invalid_request", None, false);
        assert_eq!(reply.header("idempotency-key"), Some("k1"));
    }
    world.key_state("k1").await.expect(404);
    for body in [
        json!({"orderId": 1, "paymentMethod": "pm_approved"}),
        json!({"orderId": "00000000-0000-0000-0000-000000000000"}),
        json!({"orderId": "00000000-0000-0000-0000-000000000000", "paymentMethod": "pm_approved", "amount": 1}),
    ] {
        world.post("/v1/payments", "k2", body).await.expect_problem(400, "invalid_request", None, false);
    }
    for body in [
        json!({"venueId": "demo", "name": "x", "price": {"amount": -1, "currency": "EUR"}, "capacity": 1}),
        json!({"venueId": "demo", "name": "x", "price": {"amount": 1.5, "currency": "EUR"}, "capacity": 1}),
        json!({"venueId": "demo", "name": "x", "price": {"amount": 1, "currency": "euro"}, "capacity": 1}),
        json!({"venueId": "demo", "name": "x", "price": 1, "capacity": 1}),
        json!({"venueId": "demo", "name": "x", "price": {"amount": 1, "currency": "EUR"}, "capacity": -1}),
        json!({"venueId": "demo", "name": "x", "price": {"amount": 1, "currency": "EUR"}}),
    ] {
        let put = world.ask(Method::PUT, "/v1/ticket-types/x").as_operator().json(&body).send().await;
        put.expect_problem(400, "invalid_request", None, false);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_taken_with_a_good_signature_only() {
    let world = World::start(Store::Sqlite).await;
    let body = json!({"id": "evt_1", "type": "payment.approved", "paymentId": uuid::Uuid::new_v4().to_string(), "amount": 1, "currency": "EUR",
        "occurredAt": "2026-11-30T00:00:00Z"}).to_string();
    let now = chassis::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let post = |signature: Option<String>, body: String| {
        let mut ask = world.ask(Method::POST, "/webhooks/acquirer").api_key("");
        if let Some(signature) = signature {
            ask = ask.header("acquirer-signature", &signature);
        }
        ask.bytes("application/json", body).send()
    };
    let good = |time: u64, body: &str| Some(format!("t={time},v1={}", sign("whsec_demo", time, body)));
    for _ in 0..3 {
        post(good(now, &body), body.clone()).await.expect(200);
    }
    let bad = [
        None,
        Some(String::new()),
        Some("nonsense".into()),
        Some(format!("t={now}")),
        Some(format!("t={now},v1=00")),
        Some(format!("t={now},v1={}", sign("other", now, &body))),
        good(now - 301, &body),
        good(now, "another body"),
    ];
    for signature in bad {
        let reply = post(signature.clone(), body.clone()).await;
        assert!([400, 401].contains(&reply.status.as_u16()), "{signature:?}: {}", reply.status);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
    let garbage = "not json".to_owned();
    post(good(now, &garbage), garbage).await.expect(400);
    world.stop().await;
}

fn sign(secret: &str, time: u64, body: &str) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    hex::encode(mac.finalize().into_bytes())
}
