//! Paths, queries and bodies of the REST API and of the operator's console: no text in them is a 500, and a key is found under
//! every spelling of its path.

use std::cell::RefCell;

use e2e::{Store, World};
use fuzz::{Answer, Http1Wire, Panics, Text, hold_async, runtime};
use idem_proto::idem::v1 as idem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{collection::vec, prelude::*, sample::Index, sample::select};
use prost::Message as _;

use crate::keys::text_key;

/// What RFC 3986 lets stand in a path segment as it is, less the colon, for good measure.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'!').remove(b'$').remove(b'@');

const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";

/// A key in a path: what must be is encoded, and what `also` picks.
fn spelled(key: &str, also: &[bool]) -> String {
    let mut all = String::new();
    for (at, c) in key.chars().enumerate() {
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        match also.get(at) {
            Some(true) => text.bytes().for_each(|byte| all.push_str(&format!("%{byte:02x}"))),
            _ => all.extend(utf8_percent_encode(text, SEGMENT)),
        }
    }
    // A segment of dots alone is a path of its own to whoever tidies URLs on the way.
    if all.trim_matches('.').is_empty() { all.replace('.', "%2E") } else { all }
}

#[test]
fn every_key_is_found_under_its_encoded_name() {
    let (runtime, panics) = (runtime(), Panics::watch());
    let world = runtime.block_on(World::start(Store::Sqlite));
    let grpc = runtime.block_on(fuzz::GrpcWire::connect(world.addresses().idem));
    let wire = tokio::sync::Mutex::new(Http1Wire::to(world.addresses().rest));
    let rows = [
        "/", "..", ".", "%", "%2F", "a/b", "?", "#", "+", " inside ", "é", "🎟", "\"", "\\", "a%00b", "::", "a;b=c",
        "\u{feff}", "\u{202e}",
    ];
    let keys = prop_oneof![1 => select(rows.to_vec()).prop_map(str::to_owned), 4 => text_key()];
    hold_async(&runtime, "paths-keys", 250, (keys, vec(any::<bool>(), 0..30)), |(key, also)| {
        let (wire, grpc) = (&wire, &grpc);
        async move {
            let reserve = idem::ReserveRequest {
                scope: "rest/demo-a".to_owned(),
                key: key.clone(),
                fingerprint: vec![7; 32].into(),
                attempt_id: uuid::Uuid::new_v4().to_string(),
                ..Default::default()
            };
            let reserved = grpc.call(RESERVE, &[], fuzz::frame(&reserve.encode_to_vec())).await;
            prop_assert_eq!(reserved.code, Some(fuzz::Code::Ok));
            let path = format!("/v1/idempotency-keys/{}", spelled(&key, &also));
            let answer = wire.lock().await.send("GET", &path, &[("authorization", b"Bearer sk_demo_a")], b"").await;
            prop_assert_eq!(answer.status, 200, "{}: {}", &path, answer.text());
            let state: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            prop_assert_eq!(state["key"].as_str(), Some(key.as_str()));
            Ok(())
        }
    });
    runtime.block_on(world.stop());
    panics.assert_none();
}

const PIECES: [&str; 46] = [
    "a",
    "0",
    "/",
    "//",
    "..",
    ".",
    "%",
    "%0",
    "%00",
    "%2F",
    "%2f..",
    "%ff",
    "%C3%A9",
    "%c3",
    "%ed%a0%80",
    "%25",
    "%zz",
    "?",
    "&",
    "=",
    "#",
    "+",
    ";",
    ":",
    "@",
    "*",
    "~",
    "'",
    "\"",
    "<",
    "{",
    "}",
    "|",
    "\\",
    "^",
    "[",
    "é",
    "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11",
    "confirm",
    "cancel",
    "check-in",
    "payment-link",
    "general",
    "18446744073709551616",
    "-1",
    "00000000-0000-0000-0000-000000000000",
];

const ROUTES: [&str; 14] = [
    "/v1/idempotency-keys/",
    "/v1/orders/",
    "/v1/orders",
    "/v1/payments/",
    "/v1/ticket-types/",
    "/v1/tickets/",
    "/v1/",
    "/docs/",
    "/docs/errors",
    "/openapi.json",
    "/webhooks/",
    "/",
    "/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/",
    "/v1/tickets/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/",
];

/// Paths that once were a fault, or nearly.
const ROWS: [(&str, &str); 10] = [
    ("POST", "/v1/orders/%ff/confirm"),
    ("POST", "/v1/orders/%ff/cancel"),
    ("POST", "/v1/tickets/%c3/check-in"),
    ("GET", "/v1/idempotency-keys/%ff"),
    ("GET", "/v1/idempotency-keys/%00"),
    ("GET", "/v1/idempotency-keys/%2F"),
    ("GET", "/v1/idempotency-keys/"),
    ("PUT", "/v1/ticket-types/%ed%a0%80"),
    ("GET", "/v1/orders/%7b7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11%7d"),
    ("GET", "//v1//orders"),
];

fn soup(max: usize) -> impl Strategy<Value = String> {
    vec(select(PIECES.to_vec()), 0..max).prop_map(|pieces| pieces.concat())
}

/// What the gateway says of a fault of its own, or nothing at all.
fn assert_no_fault(answer: &Answer, what: &str) -> Result<(), TestCaseError> {
    prop_assert!(answer.status < 500, "{what}: {} {}", answer.status, answer.text());
    let is_problem = answer.header("content-type") == Some("application/problem+json");
    prop_assert!(
        answer.status < 400 || is_problem || answer.body.is_empty(),
        "{what}: {} {}",
        answer.status,
        answer.text()
    );
    Ok(())
}

#[test]
fn no_path_is_a_fault_of_the_gateway() {
    let (runtime, panics) = (runtime(), Panics::watch());
    let world = runtime.block_on(World::start(Store::Sqlite));
    let wire = tokio::sync::Mutex::new(Http1Wire::to(world.addresses().rest));
    let methods = select(vec!["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "BREW"]);
    let verbs = select(vec!["", "", "/", "/confirm", "/cancel", "/payment-link", "/check-in"]);
    let path = (select(ROUTES.to_vec()), prop_oneof![soup(2), soup(6)], verbs);
    let inputs = (methods, path.prop_map(|(route, soup, verb)| format!("{route}{soup}{verb}")), any::<bool>());
    let tried = |method: &'static str, path: String, is_operator: bool| {
        let wire = &wire;
        async move {
            let key: &[u8] = if is_operator { b"Bearer sk_demo_ops" } else { b"Bearer sk_demo_a" };
            let answer = wire.lock().await.send(method, &path, &[("authorization", key)], b"").await;
            assert_no_fault(&answer, &format!("{method} {path}"))
        }
    };
    for (method, path) in ROWS {
        runtime.block_on(tried(method, path.to_owned(), false)).unwrap();
    }
    hold_async(&runtime, "paths", 4_000, inputs, |(method, path, is_operator)| tried(method, path, is_operator));
    runtime.block_on(world.stop());
    panics.assert_none();
}

/// Requests in order, to be damaged.
const BODIES: [(&str, &str, &str); 5] = [
    ("POST", "/v1/orders", r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1}]}"#),
    ("POST", "/v1/payments", r#"{"orderId":"$","paymentMethod":"pm_approved"}"#),
    (
        "PUT",
        "/v1/ticket-types/fuzzed",
        r#"{"venueId":"demo","name":"x","price":{"amount":1000,"currency":"EUR"},"capacity":10}"#,
    ),
    ("POST", "/v1/orders/$/confirm", "{}"),
    ("POST", "/v1/orders/$/cancel", ""),
];

const VALUES: [&str; 26] = [
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e0",
    "50",
    "51",
    "1e2",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1e999999999",
    "\"\"",
    "\"a\\u0000b\"",
    "\"\\ud83c\\udf9f\"",
    "\"\\n\"",
    "\"demo\"",
    "\"general\"",
    "\"eur\"",
    "[]",
    "[[]]",
    "{}",
    "{\"a\":1}",
    "[{\"ticketTypeId\":\"general\",\"quantity\":1}]",
    "\"'; DROP TABLE orders; --\"",
];

#[test]
fn no_body_is_a_fault_of_the_gateway() {
    let (runtime, panics) = (runtime(), Panics::watch());
    let world = runtime.block_on(World::start(Store::Sqlite));
    let order = runtime.block_on(world.place("placed", 1));
    let wire = tokio::sync::Mutex::new(Http1Wire::to(world.addresses().rest));
    let damage = prop_oneof![
        // A value for another value, a member for another member.
        4 => (any::<Index>(), select(VALUES.to_vec())).prop_map(|(at, value)| (0u8, at, value.to_owned())),
        1 => (any::<Index>(), any::<char>()).prop_map(|(at, c)| (1u8, at, c.to_string())),
        1 => (any::<Index>(), select(vec!["{", "}", "\"", ",", "\\", ":"])).prop_map(|(at, c)| (1u8, at, c.to_owned())),
        1 => any::<Index>().prop_map(|at| (2u8, at, String::new())),
        2 => any::<Index>().prop_map(|at| (3u8, at, String::new())),
    ];
    let statuses = RefCell::new(std::collections::BTreeMap::<u16, usize>::new());
    hold_async(
        &runtime,
        "bodies",
        250,
        (select(BODIES.to_vec()), damage),
        |((method, path, body), (how, at, text))| {
            let (wire, order, statuses) = (&wire, &order, &statuses);
            async move {
                let (path, mut body) = (path.replace('$', order), body.replace('$', order));
                let ends: Vec<usize> = body.match_indices(':').map(|(at, _)| at + 1).collect();
                match how {
                    0 if !ends.is_empty() => {
                        let start = ends[at.index(ends.len())];
                        let end = body[start..].find([',', '}']).map_or(body.len(), |end| start + end);
                        body.replace_range(start..end, &text);
                    }
                    1 => body.insert_str(at.index(body.len() + 1), &text),
                    2 => body.truncate(at.index(body.len() + 1)),
                    _ => {}
                }
                let key = uuid::Uuid::new_v4().to_string();
                let api_key: &[u8] = if method == "PUT" { b"Bearer sk_demo_ops" } else { b"Bearer sk_demo_a" };
                let lines: [(&str, &[u8]); 3] = [
                    ("authorization", api_key),
                    ("idempotency-key", key.as_bytes()),
                    ("content-type", b"application/json"),
                ];
                let answer = wire.lock().await.send(method, &path, &lines, body.as_bytes()).await;
                *statuses.borrow_mut().entry(answer.status).or_default() += 1;
                assert_no_fault(&answer, &format!("{method} {path} {body}"))
            }
        },
    );
    let statuses = statuses.into_inner();
    assert!(statuses.contains_key(&400) && statuses.keys().any(|status| *status < 300), "{statuses:?}");
    runtime.block_on(world.stop());
    panics.assert_none();
}

const QUERY: [&str; 37] = [
    "pageToken=01ffffffffffffffff016162",
    "pageToken=017fffffffffffffff016162",
    "olderThanSeconds=4294967295",
    "scope=",
    "key=",
    "states=",
    "olderThanSeconds=",
    "pageSize=",
    "pageToken=",
    "unknown=1",
    "&",
    "&",
    "=",
    "rest%2Fdemo-a",
    "rest/*",
    "*",
    "%00",
    "%ff",
    "%",
    "in_progress",
    ",",
    "lost",
    "0",
    "1",
    "501",
    "4294967295",
    "4294967296",
    "-1",
    "1e3",
    "é",
    "+",
    "01ffffffffffffffff016162",
    "017fffffffffffffff016162",
    "0100000000000000010161",
    "010005f5e10000000001616b",
    "placed",
    "🎟",
];

/// The console's questions and orders; on Postgres too, which reads texts and times by other rules.
fn the_console_answers_whatever_it_is_asked(store: Store, target: &str) {
    let (runtime, panics) = (runtime(), Panics::watch());
    let world = runtime.block_on(World::start(store));
    runtime.block_on(world.place("placed", 1));
    let wire = tokio::sync::Mutex::new(Http1Wire::to(world.addresses().idem_admin));
    let question = (select(vec!["keys", "key", "stats", "resolve", ""]), vec(select(QUERY.to_vec()), 0..8))
        .prop_map(|(path, pieces)| ("GET", format!("/console/api/{path}?{}", pieces.concat()), Text::from("")));
    let members = ["scope", "key", "fencingToken", "reason", "operator", "action", "status", "body"];
    let value = prop_oneof![
        4 => select(VALUES.to_vec()),
        2 => select(vec!["{\"release\":{}}", "{\"abandon\":{}}", "{\"complete\":{\"status\":200}}", "{\"complete\":{\"status\":99,\"body\":\"\\u0000\"}}", "\"rest/demo-a\"", "\"placed\""]),
    ];
    let order = vec((select(members.to_vec()), value), 0..8).prop_map(|members| {
        let members: Vec<String> = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        ("POST", "/console/api/resolve".to_owned(), Text(format!("{{{}}}", members.join(",")).into_bytes()))
    });
    let sane = select(vec![
        "{\"release\":{}}",
        "{\"abandon\":{}}",
        "{\"complete\":{\"status\":201,\"body\":\"{}\"}}",
        "{}",
        "null",
    ]);
    let sane = (sane, select(vec!["placed", "absent"]), select(VALUES.to_vec()), select(VALUES.to_vec())).prop_map(
        |(action, key, token, reason)| {
            let body = format!(
                r#"{{"scope":"rest/demo-a","key":"{key}","fencingToken":{token},"reason":{reason},"action":{action}}}"#
            );
            ("POST", "/console/api/resolve".to_owned(), Text(body.into_bytes()))
        },
    );
    hold_async(&runtime, target, 1_200, prop_oneof![3 => question, 1 => order, 2 => sane], |(method, path, body)| {
        let wire = &wire;
        async move {
            let lines: [(&str, &[u8]); 2] = [("x-idem-console", b"1"), ("content-type", b"application/json")];
            let answer = wire.lock().await.send(method, &path, &lines, &body.0).await;
            prop_assert!(answer.status < 500, "{method} {path} {body:?}: {} {}", answer.status, answer.text());
            Ok(())
        }
    });
    runtime.block_on(world.stop());
    panics.assert_none();
}

#[test]
fn the_console_answers_whatever_it_is_asked_on_sqlite() {
    the_console_answers_whatever_it_is_asked(Store::Sqlite, "console");
}

#[test]
fn the_console_answers_whatever_it_is_asked_on_postgres() {
    the_console_answers_whatever_it_is_asked(Store::Postgres, "console-postgres");
}
