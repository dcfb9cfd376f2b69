//! What every keyed request computes: the key from its header, the fingerprint of its body, and the decision.
//!
//! `cargo bench -p idem-core -- --save-baseline before`, then after a change `-- --baseline before`.
#![allow(missing_docs, reason = "criterion writes functions without comments")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use idem_core::{Command, Deadline, FencingToken, Fingerprint, IdempotencyKey, State, decide};

#[path = "../tests/support/mod.rs"]
#[allow(clippy::unwrap_used, reason = "it is of the tests")]
mod support;

use support::{operation, record, reserve, response};

const ORDER: &[u8] = br#"{"venueId":"load","items":[{"ticketTypeId":"general","quantity":2}]}"#;

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("key");
    let table: [(&str, &[u8]); 3] = [
        ("bare", b"0d4b5f4e-6f6c-4a62-9c5b-0d6a5b8c9e01"),
        ("quoted", br#""0d4b5f4e-6f6c-4a62-9c5b-0d6a5b8c9e01""#),
        ("escaped", br#""a \"b\" \\ c 0d4b5f4e-6f6c-4a62-9c5b""#),
    ];
    for (name, line) in table {
        assert!(IdempotencyKey::from_header(line).is_ok(), "{name}");
        group.bench_function(name, |bench| bench.iter(|| IdempotencyKey::from_header(black_box(line))));
    }
    group.finish();
}

fn fingerprints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fingerprint");
    let member = |n: usize| format!("\"member{n:04}\":{{\"text\":\"caf\\u00e9 {n}\",\"number\":{n}.50}}");
    let large = format!("{{{}}}", (0..800).rev().map(member).collect::<Vec<_>>().join(","));
    for (name, body) in [("order", ORDER), ("36 KiB", large.as_bytes())] {
        assert!(Fingerprint::of_request("POST", "/v1/orders", "", body).is_ok(), "{name}");
        group.throughput(criterion::Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bench| {
            bench.iter(|| Fingerprint::of_request("POST", "/v1/orders", "", black_box(body)));
        });
    }
    group.finish();
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let complete = || Command::Complete { operation_id: operation(1), token: FencingToken(5), response: response(1) };
    let held = record(State::InProgress, Deadline::Ahead);
    let done = record(State::Completed(response(1)), Deadline::Ahead);
    let table = [("a fresh key", None), ("a repeat while it runs", Some(held.clone())), ("a replay", Some(done))];
    for (name, record) in table {
        let decided = |command| decide(black_box(record.as_ref()), command);
        let reserved = || reserve(1, 7, 7);
        group.bench_function(name, |bench| bench.iter_batched(reserved, decided, BatchSize::SmallInput));
    }
    let completed = |command| decide(black_box(Some(&held)), command);
    group.bench_function("a complete", |bench| bench.iter_batched(complete, completed, BatchSize::SmallInput));
    group.finish();
}

criterion_group!(benches, keys, fingerprints, decisions);
criterion_main!(benches);
