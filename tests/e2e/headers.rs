//! The table of headers.

use bytes::Bytes;
use e2e::{Store, World, on_both_stores};
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_read_bare_or_quoted_and_echoed() {
    let world = World::start(Store::Sqlite).await;
    let order = |key: &'static str| world.post("/v1/orders", key, World::order_body(1));
    // Each group is one key, however it is spelt.
    let groups: &[&[&str]] = &[
        &["abc", "\"abc\"", "\"abc\";v=1", "\"abc\"; v=1;w=\"x\""],
        &["a\"b\\c", "\"a\\\"b\\\\c\""],
        &["K, K2", "\"K, K2\""],
        &["two words", "\"two words\""],
        &["clé ☂ 🎟", "\"clé ☂ 🎟\""],
        &["abc;v=1"],
    ];
    let mut ids = std::collections::BTreeSet::new();
    for group in groups {
        let first = order(group[0]).await.expect(201);
        assert!(!first.is_replay(), "{group:?}");
        ids.insert(first.text("id"));
        for key in *group {
            let again = order(key).await;
            assert!(again.is_replay(), "{key}");
            assert_eq!(again.body, first.body, "{key}");
            let echoed = again.headers["idempotency-key"].as_bytes();
            assert_eq!(
                idem_core::IdempotencyKey::from_header(echoed).unwrap().as_str(),
                idem_core::IdempotencyKey::from_header(key.as_bytes()).unwrap().as_str(),
            );
        }
    }
    assert_eq!(ids.len(), groups.len());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_keys_are_refused_before_any_store_on_optional_routes_too() {
    let world = World::start(Store::Sqlite).await;
    let placed = world.place("k0", 1).await;
    let long = "x".repeat(201);
    let bad: &[&[u8]] = &[
        b"",
        b"\"\"",
        b"\"abc",
        b"\"abc\"x",
        b"\"a\\b\"",
        b"a\tb",
        long.as_bytes(),
        b"\xff\xfe",
        "a\u{85}".as_bytes(),
        b"\"abc\", \"d\"",
    ];
    let paths = ["/v1/orders".to_owned(), format!("/v1/orders/{placed}/cancel")];
    for path in &paths {
        for key in bad {
            let url = format!("http://{}{path}", world.addresses().rest);
            let request = world.http().post(url).bearer_auth("sk_demo_a").json(&World::order_body(1));
            let request = request.header("idempotency-key", http::HeaderValue::from_bytes(key).unwrap());
            let reply = e2e::Reply::read(request.send().await.unwrap()).await;
            let reply = reply.expect_problem(400, "invalid_idempotency_key", None, false);
            assert!(reply.header("link").is_some_and(|l| l == "</docs/idempotency>; rel=\"describedby\""), "{key:?}");
        }
        let two = world.ask(Method::POST, path).key("a").key("a").json(&World::order_body(1)).send().await;
        two.expect_problem(400, "invalid_idempotency_key", None, false);
    }
    assert_eq!(world.order_status(&placed).await, "pending");
    let missing = world.ask(Method::POST, "/v1/orders").json(&World::order_body(1)).send().await;
    missing.expect_problem(400, "missing_idempotency_key", None, false);
    let missing = world.ask(Method::POST, "/v1/payments").json(&json!({})).send().await;
    missing.expect_problem(400, "missing_idempotency_key", None, false);
    let fits = "é".repeat(200);
    world.post("/v1/orders", &fits, World::order_body(1)).await.expect(201);
    world.stop().await;
}

on_both_stores! {
    async fn replays_say_so_and_when_they_end(world: World) {
        let first = world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201);
        assert!(first.header("idempotent-replayed").is_none());
        assert_eq!(first.header("idempotency-key"), Some("k1"));
        let expires = httpdate_seconds(first.header("idempotency-key-expires").unwrap());
        let retention = world.settings().retention.as_secs();
        let now = chassis::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!((expires as i64 - (now + retention) as i64).abs() <= 5, "{expires} {now}");
        let replay = world.post("/v1/orders", "k1", World::order_body(1)).await;
        assert!(replay.expect_same_as(&first).is_replay());
        // Reading does not extend it.
        world.advance(world.settings().retention / 2);
        let later = world.post("/v1/orders", "k1", World::order_body(1)).await;
        assert!(later.expect_same_as(&first).is_replay());
    }

    async fn a_gzipped_request_is_its_plain_form(world: World) {
        let body = World::order_body(1).to_string();
        let gzipped = gzip(body.as_bytes());
        let send = |encoding: &'static str, bytes: Vec<u8>| {
            let ask = world.ask(Method::POST, "/v1/orders").key("k1").header("content-encoding", encoding);
            ask.bytes("application/json", Bytes::from(bytes)).send()
        };
        let first = send("gzip", gzipped.clone()).await.expect(201);
        let plain = world.post("/v1/orders", "k1", World::order_body(1)).await;
        assert!(plain.expect_same_as(&first).is_replay());
        send("gzip", b"not gzip".to_vec()).await.expect_problem(400, "invalid_request", None, false);
        send("gzip", gzipped[..gzipped.len() - 6].to_vec()).await.expect_problem(400, "invalid_request", None, false);
        send("br", body.clone().into_bytes()).await.expect_problem(415, "unsupported_media_type", None, false);
        // A small body that unpacks to a large one counts as the large one.
        let bomb = gzip(format!("{body}{}", " ".repeat(300 * 1024)).as_bytes());
        send("gzip", bomb).await.expect_problem(413, "payload_too_large", None, false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_the_limit_or_of_another_type_are_refused() {
    let world = World::start(Store::Sqlite).await;
    let body = World::order_body(1).to_string();
    let padded = |len: usize| format!("{body}{}", " ".repeat(len - body.len()));
    let send = |key: &'static str, content_type: &'static str, body: String| {
        world.ask(Method::POST, "/v1/orders").key(key).bytes(content_type, body).send()
    };
    send("k1", "application/json", padded(256 * 1024)).await.expect(201);
    let large = send("k2", "application/json", padded(256 * 1024 + 1)).await;
    large.expect_problem(413, "payload_too_large", None, false);
    // Far over it, the refusal arrives all the same: the client is not left with a broken connection that it would retry for ever.
    for _ in 0..10 {
        send("k2", "application/json", padded(1000 * 1024)).await.expect_problem(413, "payload_too_large", None, false);
        let ask = || world.ask(Method::POST, "/v1/orders").bytes("application/json", padded(1000 * 1024));
        ask().send().await.expect_problem(400, "missing_idempotency_key", None, false);
        let coded = ask().key("k2").header("content-encoding", "br").send().await;
        coded.expect_problem(415, "unsupported_media_type", None, false);
        let nowhere = world.ask(Method::POST, "/v1/nowhere").bytes("application/json", padded(1000 * 1024));
        nowhere.send().await.expect_problem(404, "not_found", None, false);
    }
    send("k2", "text/plain", body.clone()).await.expect_problem(415, "unsupported_media_type", None, false);
    send("k2", "application/json; charset=utf-8", body.clone()).await.expect(201);
    world.key_state("k1").await.expect(200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browsers_of_listed_origins_may_send_and_read_the_headers() {
    let world = World::start_with(Store::Sqlite, |s| s.cors_origins = vec!["https://shop.example".into()]).await;
    let preflight = |origin: &'static str| {
        let ask = world.ask(Method::OPTIONS, "/v1/orders").api_key("").header("origin", origin);
        ask.header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,idempotency-key,prefer,traceparent")
            .send()
    };
    let allowed = preflight("https://shop.example").await;
    assert!(allowed.status.is_success());
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://shop.example"));
    let headers = allowed.header("access-control-allow-headers").unwrap().to_lowercase();
    for header in ["idempotency-key", "authorization", "content-type", "prefer", "traceparent"] {
        assert!(headers.contains(header), "{header} in {headers}");
    }
    assert!(preflight("https://evil.example").await.header("access-control-allow-origin").is_none());
    let ask = world.ask(Method::POST, "/v1/orders").key("k1").header("origin", "https://shop.example");
    let placed = ask.json(&World::order_body(1)).send().await.expect(201);
    let exposed = placed.header("access-control-expose-headers").unwrap().to_lowercase();
    for header in [
        "idempotency-key",
        "idempotent-replayed",
        "idempotency-key-expires",
        "retry-after",
        "preference-applied",
        "location",
    ] {
        assert!(exposed.contains(header), "{header} in {exposed}");
    }
    // Refusals must be readable too.
    let refused = world.ask(Method::POST, "/v1/orders").header("origin", "https://shop.example").send().await;
    assert_eq!(refused.expect(400).header("access-control-allow-origin"), Some("https://shop.example"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_listed_origins_no_browser_is_let_in() {
    let world = World::start(Store::Sqlite).await;
    let reply =
        world.ask(Method::GET, "/v1/ticket-types/general").header("origin", "https://shop.example").send().await;
    assert!(reply.expect(200).header("access-control-allow-origin").is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_the_caller_is_continued() {
    let world = World::start(Store::Sqlite).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ask = world.ask(Method::POST, "/v1/orders").header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01"));
    let problem: Value = ask.json(&World::order_body(1)).send().await.expect(400).json();
    assert_eq!(problem["traceId"], trace);
    world.stop().await;
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn httpdate_seconds(date: &str) -> u64 {
    httpdate::parse_http_date(date).unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}
