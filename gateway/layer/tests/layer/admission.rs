//! What is decided before any store is touched.

use std::io::Write;

use axum::{Router, routing::post as on_post};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{Request, StatusCode};
use idem_core::{IdempotencyKey, StateName};
use idem_layer::{Problem, RoutePolicy, ports::Label};
use tower::ServiceExt;

use crate::{
    scripted::{Act, Gate, created, labelled, sold_out},
    world::{BODY, Counters, World, ask, key_id, post, settle},
};

fn optional() -> World {
    World::with(RoutePolicy::optional("POST /things"))
}

fn gzip(plain: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain.as_bytes()).unwrap();
    encoder.finish().unwrap().into()
}

#[tokio::test(start_paused = true)]
async fn a_required_route_without_a_key_is_400_and_touches_nothing() {
    let world = World::new();
    let answer = world.send(ask("/things").body(BODY)).await;
    answer.assert_problem(400, "missing_idempotency_key");
    assert_eq!(answer.header("link"), Some("</docs/idempotency>; rel=\"describedby\""));
    assert_eq!(answer.header("idempotency-key"), None);
    assert_eq!((world.inner.executions(), world.store.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_optional_route_without_a_key_executes_even_when_the_store_is_down() {
    let world = optional();
    world.store.set_down(true);
    let answer = world.send(ask("/things").body(BODY)).await;
    assert_eq!(answer.status, 201);
    for header in ["idempotency-key", "idempotent-replayed", "idempotency-key-expires"] {
        assert_eq!(answer.header(header), None, "{header}");
    }
    assert_eq!(world.inner.seen()[0].permit, None);
    assert_eq!(world.store.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_optional_route_honours_a_key_and_refuses_a_bad_one() {
    let world = optional();
    assert_eq!(world.post("k").await.status, 201);
    assert!(world.post("k").await.is_replay());
    world.send(ask("/things").key("\"open").body(BODY)).await.assert_problem(400, "invalid_idempotency_key");
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_route_passes_key_and_body_as_they_come() {
    let world = World::with(RoutePolicy::ignored("POST /things"));
    let raw = gzip("not json");
    let request = ask("/things").header("content-encoding", "gzip").header("content-type", "text/plain");
    let answer = world.send(request.key("\"open").key("second").body(raw.clone())).await;
    assert_eq!((answer.status, answer.header("idempotency-key")), (201, None));
    let seen = &world.inner.seen()[0];
    assert_eq!((seen.body.clone(), seen.headers["content-encoding"].to_str().unwrap()), (raw, "gzip"));
    assert_eq!(world.store.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unkeyed_route_ignores_any_key_and_checks_the_body() {
    let world = World::with(RoutePolicy::unkeyed("POST /things"));
    let request = ask("/things").key("\"open").key("second");
    let answer = world.send(request.clone().header("content-encoding", "gzip").body(gzip(BODY))).await;
    assert_eq!((answer.status, answer.header("idempotency-key")), (201, None));
    assert_eq!(world.inner.seen()[0].body, BODY);
    world.send(request.body("{")).await.assert_problem(400, "invalid_request");
    assert_eq!((world.inner.executions(), world.store.calls().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn two_key_lines_are_400_whatever_they_say() {
    for world in [World::new(), optional()] {
        for second in ["k", "other", ""] {
            let answer = world.send(post("k").key(second)).await;
            answer.assert_problem(400, "invalid_idempotency_key");
            assert_eq!(answer.json()["details"]["reason"], "several_lines");
        }
        assert_eq!((world.inner.executions(), world.store.calls().len()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn bare_and_quoted_lines_are_the_same_key_and_are_echoed_as_sent() {
    let world = World::new();
    let lines: [&[u8]; 3] = [b"abc", b"\"abc\"", b"\"abc\";v=1"];
    for (nth, line) in lines.into_iter().enumerate() {
        let answer = world.send(ask("/things").header("idempotency-key", line).body(BODY)).await;
        assert_eq!((answer.status, answer.is_replay()), (201, nth > 0));
        assert_eq!(answer.headers["idempotency-key"].as_bytes(), line);
    }
    for line in ["K, K2", "a b", "é∑🎟"] {
        let answer = world.send(ask("/things").key(line).body(BODY)).await;
        assert_eq!(answer.headers["idempotency-key"].as_bytes(), line.as_bytes());
        assert_eq!(world.state(line), Some(StateName::Completed));
    }
}

/// Ten thousand header values of every kind: what the core refuses never reaches the store, what it takes names the same key.
#[tokio::test(start_paused = true)]
async fn fuzzed_keys_reach_the_store_only_when_they_are_valid() {
    let seed = uuid::Uuid::new_v4().as_u128() as u64;
    println!("seed {seed}");
    let mut random = crate::concurrency::Random(seed);
    let alphabet: &[&[u8]] = &[
        b"a",
        b"Z",
        b"0",
        b" ",
        b"\t",
        b"\"",
        b"\\",
        b",",
        b";",
        b"=",
        b"\xff",
        b"\xc3",
        "é".as_bytes(),
        "\u{85}".as_bytes(),
        "🎟".as_bytes(),
        b"k",
    ];
    let world = World::new();
    let (mut valid, mut invalid) = (0, 0);
    for _ in 0..10_000 {
        let len = if random.below(20) == 0 { 190 + random.below(30) } else { random.below(8) };
        let line: Vec<u8> = (0..len).flat_map(|_| alphabet[random.below(alphabet.len())].to_vec()).collect();
        let before = world.store.calls().len();
        let answer = world.send(ask("/things").header("idempotency-key", &line).body(BODY)).await;
        match IdempotencyKey::from_header(&line) {
            Ok(key) => {
                assert_eq!(answer.status, 201, "{line:?}");
                assert_eq!(world.state(key.as_str()), Some(StateName::Completed), "{line:?}");
                valid += 1;
            }
            Err(_) => {
                answer.assert_problem(400, "invalid_idempotency_key");
                assert_eq!(answer.header("idempotency-key"), None);
                assert_eq!(world.store.calls().len(), before, "{line:?}");
                invalid += 1;
            }
        }
    }
    assert!(valid > 1_000 && invalid > 1_000, "{valid} valid and {invalid} invalid keys are no test");
}

#[tokio::test(start_paused = true)]
async fn the_key_is_judged_before_the_body_and_the_body_before_the_route() {
    let check = |_: &http::request::Parts, body: &Bytes| match &body[..] {
        b"{\"bad\":1}" => Err(Problem::invalid_request("no bad things")),
        _ => Ok(()),
    };
    let world = World::with(RoutePolicy::required("POST /things").validate(check));
    world.send(ask("/things").key("").body("{")).await.assert_problem(400, "invalid_idempotency_key");
    world.send(ask("/things").body("{")).await.assert_problem(400, "missing_idempotency_key");
    let keyed = || ask("/things").key("k");
    let table = [
        (keyed().body("x".repeat(256 * 1024 + 1)), 413, "payload_too_large"),
        (keyed().header("content-type", "text/plain").body("{"), 415, "unsupported_media_type"),
        (keyed().header("content-encoding", "br").body("{}"), 415, "unsupported_media_type"),
        (keyed().header("content-encoding", "gzip").body("{}"), 400, "invalid_request"),
        (keyed().body("{"), 400, "invalid_request"),
        (keyed().body("{\"a\":1,\"a\":1}"), 400, "invalid_request"),
        (keyed().body("{\"bad\":1}"), 400, "invalid_request"),
    ];
    for (request, status, error) in table {
        let answer = world.send(request).await;
        answer.assert_problem(status, error);
        assert_eq!(answer.header("idempotency-key"), Some("k"), "{error}");
        assert_eq!(answer.header("link"), None, "{error}");
    }
    assert_eq!((world.inner.executions(), world.store.calls().len()), (0, 0));
    // A refusal binds nothing: the same key is good for the corrected request.
    assert_eq!(world.post("k").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_gzipped_body_is_the_same_request_as_its_plain_form() {
    let world = World::new();
    assert_eq!(world.post("k").await.status, 201);
    let request = ask("/things").key("k").header("content-encoding", "gzip").header("content-type", "application/json");
    assert!(world.send(request.body(gzip(r#"{ "a": 1.0 }"#))).await.is_replay());
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_is_the_same_request_as_an_empty_object() {
    let world = World::new();
    assert_eq!(world.send(ask("/things").key("k")).await.status, 201);
    assert!(world.send(ask("/things").key("k").body("{}")).await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn another_method_path_query_or_body_under_the_key_is_422() {
    let world = World::new();
    assert_eq!(world.post("k").await.status, 201);
    let others = [
        post("k").method("PUT"),
        ask("/things/2").key("k").body(BODY),
        ask("/things?x=1").key("k").body(BODY),
        post("k").body(r#"{"a":"1"}"#),
        post("k").body(r#"{"a":1,"b":null}"#),
    ];
    for other in others {
        let answer = world.send(other).await;
        answer.assert_problem(422, "idempotency_key_reuse");
        assert_eq!(answer.header("retry-after"), None);
        assert_eq!(answer.header("idempotency-key"), Some("k"));
        assert_eq!(answer.header("link"), Some("</docs/idempotency>; rel=\"describedby\""));
        assert_eq!(answer.json()["retryable"], false);
    }
    assert!(world.post("k").await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn another_body_in_flight_is_422_not_409_and_hurts_nobody() {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(created())));
    let first = world.start(post("k"));
    gate.arrived().await;
    world.send(post("k").body("[]")).await.assert_problem(422, "idempotency_key_reuse");
    world.post("k").await.assert_problem(409, "conflict/request_in_progress");
    gate.open();
    assert_eq!(first.await.unwrap().status, 201);
    assert!(world.post("k").await.is_replay());
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_fingerprint_stays_after_a_release() {
    let world = World::new();
    world.inner.will(sold_out());
    assert_eq!(world.post("k").await.status, 409);
    world.send(post("k").body("[]")).await.assert_problem(422, "idempotency_key_reuse");
    assert_eq!(world.post("k").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn two_scopes_never_meet() {
    let world = World::new();
    assert_eq!(world.post("k").await.status, 201);
    let other = world.send(post("k").scope(Some("rest/b"))).await;
    assert_eq!((other.status, other.is_replay()), (201, false));
    assert_eq!(world.inner.executions(), 2);
    // Keys as clients choose them who count their orders.
    for nth in 1..=1000_u32 {
        for (scope, mine) in [("rest/a", "1"), ("rest/b", "2")] {
            let ask = || ask("/things").key(&nth.to_string()).scope(Some(scope));
            let first = world.send(ask().body(mine)).await;
            assert_eq!((first.status, first.is_replay()), (201, false), "{scope} {nth}");
            // The other scope has bound the same key to another body, and nobody hears of it.
            assert!(world.send(ask().body(mine)).await.is_replay(), "{scope} {nth}");
        }
    }
    assert_eq!(world.inner.executions(), 2002);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_scope_is_never_executed_unprotected() {
    let world = World::new();
    world.send(post("k").scope(None)).await.assert_problem(503, "idempotency_unavailable");
    assert_eq!(world.inner.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_keyed_request_counts_in_exactly_one_outcome() {
    let counters = Counters::default();
    let _installed = metrics::set_default_local_recorder(&counters);
    let world = World::with(RoutePolicy::optional("POST /things"));
    world.inner.will(created()).will(sold_out()).will(Act::Answer(labelled(202, "{}", Label::Undecided)));
    let _unkeyed = world.send(ask("/things").body(BODY)).await;
    assert!(counters.all().is_empty(), "{:?}", counters.all());
    let _released = world.post("a").await;
    let _undecided = world.post("b").await;
    let _executed = world.post("c").await;
    let _replayed = world.post("c").await;
    let _mismatch = world.send(post("c").body("[]")).await;
    let _invalid = world.send(post("\"")).await;
    let _refused = world.send(post("d").body("{")).await;
    let _unscoped = world.send(post("e").scope(None)).await;
    world.store.set_down(true);
    let _unavailable = world.post("f").await;
    let counted: Vec<(String, u64)> = counters.all().into_iter().collect();
    let expected = [
        ("outcomes_total{executed}", 1),
        ("outcomes_total{key_invalid}", 1),
        ("outcomes_total{mismatch}", 1),
        ("outcomes_total{refused}", 1),
        ("outcomes_total{released}", 1),
        ("outcomes_total{replayed}", 1),
        ("outcomes_total{unavailable}", 2),
        ("outcomes_total{undecided}", 1),
    ];
    assert_eq!(counted, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_while_it_sends_is_counted_as_cut_off() {
    let counters = Counters::default();
    let _installed = metrics::set_default_local_recorder(&counters);
    let world = World::new();
    // A body that never ends.
    let layer = world.layer.layer(RoutePolicy::required("POST /things"));
    let app = Router::new().route("/things", on_post(|| async {}).layer(layer));
    let stalled = axum::body::Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post("/things").header("idempotency-key", "k").body(stalled).unwrap();
    let sending = crate::world::spawn(app.oneshot(request));
    settle().await;
    sending.abort();
    assert!(sending.await.is_err());
    assert_eq!(counters.all().into_iter().collect::<Vec<_>>(), [("outcomes_total{cut_off}".to_owned(), 1)]);
    assert_eq!(world.store.calls().len(), 0);
}

/// The layer on axum: routes of a nested router, wrapped one by one, with a GET beside a keyed POST.
#[tokio::test(start_paused = true)]
async fn behind_a_nested_router_the_whole_path_counts() {
    let world = World::new();
    let keyed = || {
        let layer = world.layer.layer(RoutePolicy::required("POST /things"));
        on_post(async || labelled(201, "{}", Label::Final).map(axum::body::Body::new)).route_layer(layer)
    };
    let nested = || Router::new().route("/things", keyed().get(async || "read"));
    let app = Router::new().nest("/v1", nested()).nest("/v2", nested()).layer(axum::Extension(key_id("k").scope));
    let send = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("idempotency-key", "k");
        app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap().status()
    };
    assert_eq!(send("POST", "/v1/things").await, StatusCode::CREATED);
    assert_eq!(send("POST", "/v1/things").await, StatusCode::CREATED);
    assert_eq!(send("POST", "/v2/things").await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(send("GET", "/v1/things").await, StatusCode::OK);
    assert_eq!(send("PUT", "/v1/things").await, StatusCode::METHOD_NOT_ALLOWED);
}
