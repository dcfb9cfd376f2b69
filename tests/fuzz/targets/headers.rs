//! The other headers that a stranger writes: `Prefer`, `Authorization`, `traceparent`, `grpc-timeout`, `Content-Type` and
//! `Content-Encoding`, each against a reading of its own.

use std::{io::Write, time::Duration};

use chassis::{deadline::Deadline, trace::Parent};
use flate2::{Compression, write::GzEncoder};
use fuzz::{Edge, Http1Wire, Panics, Text, hold, hold_async, runtime};
use http::HeaderValue;
use proptest::{prelude::*, sample::select};

use crate::{
    layer::Layered,
    lines::{headers, lines, visible},
};

// === Prefer ===

/// Cuts where `at` stands outside quotes.
fn cut(text: &str, at: char) -> Vec<String> {
    let (mut parts, mut in_quotes, mut chars) = (vec![String::new()], false, text.chars());
    while let Some(c) = chars.next() {
        if c == at && !in_quotes {
            parts.push(String::new());
            continue;
        }
        in_quotes ^= c == '"';
        let part = parts.last_mut().expect("there is one");
        part.push(c);
        if c == '\\' && in_quotes {
            part.extend(chars.next());
        }
    }
    parts
}

/// The seconds of the first `wait` there is, if they make sense.
fn seconds(lines: &[Text]) -> Option<u64> {
    let preferences = lines.iter().filter_map(visible).flat_map(|line| cut(line, ','));
    let mut waits = preferences.filter_map(|preference| {
        let token = cut(&preference, ';').remove(0);
        let (name, value) = token.split_once('=').unwrap_or((&token, ""));
        let is_wait = name.trim_matches([' ', '\t']).to_lowercase() == "wait";
        is_wait.then(|| value.trim_matches([' ', '\t']).to_owned())
    });
    let value = waits.next()?;
    let digits = match value.as_bytes() {
        [b'"', .., b'"'] => &value[1..value.len() - 1],
        _ => &value,
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    let digits = digits.trim_start_matches('0');
    match digits.len() {
        _ if !is_number => None,
        0 => None,
        1 | 2 => Some(digits.parse::<u64>().unwrap().min(30)),
        _ => Some(30),
    }
}

const WAITS: &[&str] =
    &["wait=1", "wait=10", "respond-async, wait=29", "wait=\"1\"; foo=\"a, b\", wait=2", "foo=\"\\\"\", wait=3"];
const PREFER: &[&str] = &[
    "wait",
    "WAIT",
    "wait=5",
    "wait=",
    "=",
    "5",
    "30",
    "31",
    "0",
    "007",
    "99999999999999999999999999",
    "-1",
    "\"",
    "\\",
    ",",
    ";",
    " ",
    "\t",
    "respond-async",
    "foo=\"a, wait=3\"",
    "waiting=5",
    "wait=\"6\"",
    "wait = 7",
    ".5",
    "+1",
];

#[test]
fn a_preference_to_wait_is_honoured_as_the_rfc_has_it_and_nonsense_ignored() {
    let (runtime, layered) = (runtime(), Layered::new());
    hold_async(&runtime, "prefer", 4_000, lines(WAITS, PREFER, 0..3), |lines| {
        let layered = &layered;
        async move {
            let mut headers = headers("prefer", &lines);
            headers.insert("idempotency-key", HeaderValue::from_static("k"));
            let answer = layered.post(headers, b"{}").await;
            prop_assert_eq!((answer.status, answer.error.as_str()), (422, "idempotency_key_reuse"));
            prop_assert_eq!(answer.preference_applied, seconds(&lines).map(|it| format!("wait={it}")));
            Ok(())
        }
    });
}

// === Authorization ===

const BEARERS: &[&str] = &["Bearer sk_a", "Bearer  sk_a ", "Basic sk_a", "Basic  sk_a", "Bearer=sk_a", "Token sk_a"];
const AUTHORIZATION: &[&str] = &[
    "Bearer",
    "bearer",
    "BEARER ",
    "Bearer ",
    "Bearer sk_a",
    " ",
    "  ",
    "\t",
    "sk_a",
    "sk_A",
    "sk_ab",
    ",",
    "Basic ",
    "=",
    "\"",
    "é",
    "\u{a0}",
];

/// One line, `Bearer` in any case, a space, and the key.
fn opens(lines: &[Text]) -> bool {
    let [line] = lines else { return false };
    // HTTP takes the white space off both ends before anybody reads.
    let Some(text) = visible(line).map(|text| text.trim_matches([' ', '\t'])) else { return false };
    text.split_once(' ')
        .is_some_and(|(scheme, key)| scheme.to_lowercase() == "bearer" && key.trim_matches([' ', '\t']) == "sk_a")
}

#[test]
fn only_the_key_of_a_tenant_opens_the_gateway() {
    let (runtime, panics) = (runtime(), Panics::watch());
    let edge = runtime.block_on(Edge::start());
    let wire = tokio::sync::Mutex::new(Http1Wire::to(edge.api));
    let path = "/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11";
    hold_async(&runtime, "authorization", 3_000, lines(BEARERS, AUTHORIZATION, 0..3), |lines| {
        let (wire, edge) = (&wire, &edge);
        async move {
            let before = edge.calls();
            let sent: Vec<_> = lines.iter().map(|line| ("authorization", line.0.as_slice())).collect();
            let answer = wire.lock().await.send("GET", path, &sent, b"").await;
            // Who may come in meets an orders service that is away.
            let expected = if opens(&lines) { 503 } else { 401 };
            prop_assert_eq!(answer.status, expected, "{}", answer.text());
            prop_assert_eq!(edge.calls() > before, opens(&lines));
            prop_assert_eq!(answer.header("www-authenticate").is_some(), !opens(&lines));
            Ok(())
        }
    });
    panics.assert_none();
}

// === traceparent ===

const TRACES: &[&str] = &[
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
    "fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "fe-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
];
const TRACEPARENT: &[&str] = &[
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "00000000000000000000000000000000",
    "00f067aa0ba902b7",
    "0000000000000000",
    "00",
    "01",
    "cc",
    "ff",
    "fF",
    "-",
    "-01",
    "-what",
    ".",
    "g",
    " ",
    "\t",
    "é",
];

/// As W3C Trace Context has it, field by field.
fn is_traceparent(text: &str) -> bool {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let fields: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags, more @ ..] = &fields[..] else { return false };
    let is_hex = |field: &str, len| field.len() == len && field.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let is_set = |field: &str| field.chars().any(|c| c != '0');
    is_hex(version, 2)
        && *version != "ff"
        && is_hex(trace, 32)
        && is_set(trace)
        && is_hex(span, 16)
        && is_set(span)
        && is_hex(flags, 2)
        && (more.is_empty() || *version != "00")
}

#[test]
fn a_trace_is_continued_only_from_one_valid_traceparent() {
    hold("traceparent", 10_000, lines(TRACES, TRACEPARENT, 0..3), |lines| {
        let one = match &lines[..] {
            [line] => visible(line).is_some_and(is_traceparent),
            _ => false,
        };
        prop_assert_eq!(Parent::from_headers(&headers("traceparent", &lines)).is_some(), one);
        for line in &lines {
            let text = String::from_utf8_lossy(&line.0);
            prop_assert_eq!(Parent::from_traceparent(&text).is_some(), is_traceparent(&text));
        }
        Ok(())
    });
}

// === grpc-timeout ===

const TIMEOUTS: &[&str] = &["1H", "99999999H", "99999999M", "1S", "00000001m", "99999999m", "0u", "99999999n"];
const GRPC_TIMEOUT: &[&str] =
    &["0", "1", "9", "99999999", "00000001", "H", "M", "S", "m", "u", "n", "s", " ", "-", "+", ".", "é", "1S"];

fn timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if !(1..=8).contains(&digits.len()) || digits.chars().any(|c| !c.is_ascii_digit()) {
        return None;
    }
    let nanos = [
        ('H', 3_600_000_000_000),
        ('M', 60_000_000_000),
        ('S', 1_000_000_000),
        ('m', 1_000_000),
        ('u', 1_000),
        ('n', 1),
    ];
    let (_, nanos) = nanos.into_iter().find(|(letter, _)| *letter == unit)?;
    let all: u128 = digits.parse::<u128>().unwrap() * nanos;
    Some(Duration::new((all / 1_000_000_000) as u64, (all % 1_000_000_000) as u32))
}

#[test]
fn a_deadline_is_what_grpc_timeout_says_or_none() {
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    hold("grpc-timeout", 5_000, lines(TIMEOUTS, GRPC_TIMEOUT, 0..2), |lines| {
        let expected = lines.first().and_then(visible).and_then(timeout).map(|it| it.min(ten_years));
        let deadline = Deadline::from_grpc(&headers("grpc-timeout", &lines));
        prop_assert_eq!(deadline.is_some(), expected.is_some());
        if let (Some(deadline), Some(expected)) = (deadline, expected) {
            let left = deadline.remaining();
            prop_assert!(left <= expected && left + Duration::from_secs(10) >= expected, "{left:?} of {expected:?}");
        }
        Ok(())
    });
}

// === Content-Type and Content-Encoding ===

const TYPES: &[&str] = &[
    "application/json",
    "application/json; charset=utf-8",
    "application/json; charset=latin1",
    "application/problem+json",
    "text/json",
    "application/xml",
];
const CODINGS: &[&str] = &["gzip", "identity", "x-gzip, identity", "gzip, gzip", "deflate", "identity, br"];
const CONTENT: &[&str] = &[
    "application/json",
    "Application/JSON",
    "application/",
    "json",
    "+json",
    "text/json",
    "application/jsonp",
    ";charset=utf-8",
    ";Charset=\"UTF-8\"",
    ";charset=utf-16",
    ";",
    ",",
    " ",
    "\t",
    "gzip",
    "GZIP",
    "x-gzip",
    "identity",
    "deflate",
    "br",
    "é",
    "*",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coded {
    Plain,
    Gzip,
    Refused,
}

fn coding(lines: &[Text]) -> Coded {
    let mut names = Vec::new();
    for line in lines {
        let Some(text) = visible(line) else { return Coded::Refused };
        names.extend(text.split(',').map(|name| name.trim().to_lowercase()));
    }
    names.retain(|name| !name.is_empty() && name != "identity");
    match &names[..] {
        [] => Coded::Plain,
        [name] if name == "gzip" || name == "x-gzip" => Coded::Gzip,
        _ => Coded::Refused,
    }
}

fn is_json(lines: &[Text]) -> bool {
    lines.iter().all(|line| {
        let Some(text) = visible(line) else { return false };
        let text = text.to_lowercase();
        let (essence, parameters) = text.split_once(';').unwrap_or((&text, ""));
        let essence = essence.trim();
        let charsets = parameters.split(';').filter_map(|it| it.split_once('=')).filter(|it| it.0.trim() == "charset");
        let is_utf8 = |charset: &str| ["utf-8", "utf8", "us-ascii"].contains(&charset.trim().trim_matches('"'));
        (essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")))
            && charsets.map(|it| it.1).all(is_utf8)
    })
}

#[test]
fn bodies_of_another_type_or_coding_are_415_and_never_reach_the_route() {
    let (runtime, layered) = (runtime(), Layered::unkeyed());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"{\"a\":1}").unwrap();
    let zipped = encoder.finish().unwrap();
    let bodies = select(vec![b"{\"a\":1}".to_vec(), zipped, Vec::new()]).prop_map(Text);
    let inputs = (lines(TYPES, CONTENT, 0..3), lines(CODINGS, CONTENT, 0..3), bodies);
    hold_async(&runtime, "content", 4_000, inputs, |(types, codings, body)| {
        let layered = &layered;
        async move {
            let mut all = headers("content-type", &types);
            all.extend(headers("content-encoding", &codings));
            let before = layered.executions();
            let answer = layered.post(all, &body.0).await;
            let is_zipped = body.0.starts_with(&[0x1f, 0x8b]);
            let expected = match coding(&codings) {
                Coded::Refused => 415,
                _ if body.0.is_empty() => 200,
                _ if !is_json(&types) => 415,
                Coded::Plain if is_zipped => 400,
                Coded::Gzip if !is_zipped => 400,
                _ => 200,
            };
            prop_assert_eq!(answer.status, expected, "{}", String::from_utf8_lossy(&answer.body));
            prop_assert_eq!(layered.executions() - before, usize::from(expected == 200));
            if expected == 200 && !body.0.is_empty() {
                prop_assert_eq!(&layered.executed_body()[..], b"{\"a\":1}");
            }
            Ok(())
        }
    });
}
