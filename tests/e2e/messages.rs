//! Answers and bodies that are larger than anything that is stored, through the layer, the client and the service.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use chassis::tasks::Tasks;
use e2e::{World, on_both_stores};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use idem_client::IdemClient;
use idem_core::{FencingToken, LEASE_DEFAULT, OperationId, RETENTION_DEFAULT, Scope};
use idem_layer::{
    Hooks, Idempotency, RoutePolicy, Settings,
    ports::{Found, Label, Outcome, Permit, Recover, RecoverError},
};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

const MIB: usize = 1024 * 1024;
const NEARLY_FOUR: usize = 39 * MIB / 10;
const OVER_FOUR: usize = 41 * MIB / 10;

/// Nobody asks: every execution here says what it came to.
struct Nobody;

#[async_trait::async_trait]
impl Recover for Nobody {
    async fn lookup(&self, _: OperationId, _: FencingToken, _: Instant) -> Result<Found, RecoverError> {
        Ok(Found::Unknown)
    }
}

/// A service that answers with `size` bytes, behind the layer and the world's idempotency service.
async fn ask(world: &World, key: &str, size: usize, executions: &Arc<AtomicUsize>) -> Response<Bytes> {
    let hooks = Hooks::new(|operation| drop(Tasks::new().spawn("operation", operation)));
    let settings = Settings::new(LEASE_DEFAULT, RETENTION_DEFAULT, Duration::from_secs(25), hooks);
    let idem = IdemClient::connect_lazy(format!("http://{}", world.addresses().idem), None).unwrap();
    let executions = executions.clone();
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        executions.fetch_add(1, Ordering::SeqCst);
        let id = request.extensions().get::<Permit>().unwrap().operation_id.to_string();
        async move {
            let mut response = Response::builder()
                .status(201)
                .header("content-type", "text/csv")
                .header("location", "/v1/exports/1")
                .body(Full::new(Bytes::from(vec![b'x'; size])))
                .unwrap();
            response.extensions_mut().insert(Outcome { label: Label::Final, is_replayed: false, resource_id: id });
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let service = Idempotency::new(settings, idem, Nobody).layer(RoutePolicy::required("POST /exports")).layer(inner);
    let mut request = Request::post("/exports").header("idempotency-key", key).body(Full::new(Bytes::new())).unwrap();
    request.extensions_mut().insert(Scope::new("rest/demo-a").unwrap());
    let (head, body) = service.oneshot(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

on_both_stores! {
    async fn an_answer_too_large_to_store_is_given_once_and_its_tombstone_from_then_on(world: World) {
        for (key, size, is_stored) in [("just", MIB, true), ("nearly", NEARLY_FOUR, false), ("over", OVER_FOUR, false)] {
            let executions = Arc::default();
            let first = ask(&world, key, size, &executions).await;
            assert_eq!((first.status().as_u16(), first.body().len()), (201, size), "the client gets its answer");
            assert!(first.headers().contains_key("idempotency-key-expires"), "it was stored before it left");
            for _ in 0..2 {
                let again = ask(&world, key, size, &executions).await;
                assert_eq!((again.status().as_u16(), &again.headers()["idempotent-replayed"]), (201, &"true".parse().unwrap()));
                assert_eq!(again.headers()["location"], "/v1/exports/1");
                if is_stored {
                    assert_eq!(again.body(), first.body());
                } else {
                    assert_eq!(again.headers()["content-type"], "application/problem+json");
                    let problem: serde_json::Value = serde_json::from_slice(again.body()).unwrap();
                    assert_eq!(problem["error"], "response_too_large_to_replay", "{problem}");
                }
            }
            assert_eq!(executions.load(Ordering::SeqCst), 1, "{key}");
            assert_eq!(world.key_state(key).await.expect(200).text("state"), "completed");
        }
    }

    async fn a_body_too_large_to_read_binds_no_key(world: World) {
        for size in [NEARLY_FOUR, OVER_FOUR] {
            let body = format!("{{\"venueId\":\"{}\"}}", "v".repeat(size));
            let refused = world.ask(Method::POST, "/v1/orders").key("k1").bytes("application/json", body).send().await;
            refused.expect_problem(413, "payload_too_large", None, false);
        }
        assert_eq!(world.key_state("k1").await.status, 404);
        world.place("k1", 1).await;
    }
}
