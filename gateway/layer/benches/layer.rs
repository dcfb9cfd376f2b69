//! What the layer itself adds to a request, with a store in memory and a service that does nothing: a fresh key, and a replay.
//!
//! `cargo bench -p idem-layer -- --save-baseline before`, then after a change `-- --baseline before`.
#![allow(missing_docs, reason = "criterion writes functions without comments")]

use std::{convert::Infallible, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use idem_core::{FencingToken, LEASE_DEFAULT, OperationId, RETENTION_DEFAULT, Scope};
use idem_layer::{
    Hooks, Idempotency, RoutePolicy, Settings,
    ports::{Found, Label, Outcome, Recover, RecoverError},
};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

#[path = "../tests/layer/memory.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "it is of the tests, which use the rest of it")]
mod memory;

const ORDER: &[u8] = br#"{"venueId":"load","items":[{"ticketTypeId":"general","quantity":2}]}"#;

/// Nobody is asked here.
struct Nothing;

#[async_trait]
impl Recover for Nothing {
    async fn lookup(&self, _: OperationId, _: FencingToken, _: Instant) -> Result<Found, RecoverError> {
        Ok(Found::Unknown)
    }
}

#[allow(clippy::disallowed_methods, reason = "nothing shuts down here")]
fn requests(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let hooks = Hooks::new(|operation| drop(tokio::spawn(operation)));
    let settings = Settings::new(LEASE_DEFAULT, RETENTION_DEFAULT, Duration::from_secs(25), hooks);
    let layer = Idempotency::new(settings, memory::Memory::new(), Nothing);
    let service = layer.layer(RoutePolicy::required("POST /v1/orders")).layer(service_fn(made));
    let ask = async |key: &str| {
        let request = Request::post("/v1/orders")
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .extension(Scope::new("rest/tenant").expect("a scope"))
            .body(Full::new(Bytes::from_static(ORDER)))
            .expect("a request");
        service.clone().oneshot(request).await.expect("an answer").status()
    };
    let mut group = criterion.benchmark_group("layer");
    group.bench_function("a replay", |bench| {
        bench.to_async(&runtime).iter(async || assert_eq!(ask("the one key").await, StatusCode::CREATED));
    });
    let number = std::cell::Cell::new(0_u64);
    group.bench_function("a fresh key", |bench| {
        bench.to_async(&runtime).iter(async || {
            number.set(number.get() + 1);
            assert_eq!(ask(&format!("key {}", number.get())).await, StatusCode::CREATED);
        });
    });
    group.finish();
}

async fn made(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"{\"id\":\"order-1\"}")));
    *response.status_mut() = StatusCode::CREATED;
    response.extensions_mut().insert(Outcome {
        label: Label::Final,
        is_replayed: false,
        resource_id: "order-1".to_owned(),
    });
    Ok(response)
}

criterion_group!(benches, requests);
criterion_main!(benches);
