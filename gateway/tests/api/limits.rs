//! One tenant asks too much: it is refused, alone, before anything happens.

use crate::keyed::{placed, places};
use crate::world::{Answer, World, eventually, send};
use gateway::{ApiKeyEntry, ApiKeySecret, ApiKeys, Limits};
use idem_core::StateName;
use idem_proto::orders::v1 as proto;
use tokio::sync::watch;

const ORDER: &str = r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1}]}"#;

fn two_tenants() -> ApiKeys {
    let entry = |tenant: &str, key: &str| ApiKeyEntry {
        tenant: tenant.to_owned(),
        secret: ApiKeySecret::Key(key.to_owned()),
        operator: false,
        expires_at: None,
    };
    ApiKeys::from_entries([entry("a", "sk_a"), entry("a", "sk_a_rotated"), entry("b", "sk_b")]).unwrap()
}

async fn world(limits: Limits) -> World {
    World::start_with(|config| {
        config.api_keys = two_tenants();
        config.limits = limits;
    })
    .await
}

async fn order(world: &World, api_key: &str, key: &str) -> Answer {
    let url = format!("http://{}/v1/orders", world.api);
    let request = world.client.post(url).bearer_auth(api_key).header("idempotency-key", key);
    send(request.header("content-type", "application/json").body(ORDER)).await
}

fn assert_limited(answer: &Answer, key: &str, reason: &str) {
    assert_eq!(answer.problem(), "429 rate_limited", "{}", answer.text);
    assert_eq!(answer.json()["details"]["reason"], reason);
    assert_eq!(answer.json()["retryable"], true);
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert_eq!(answer.header("idempotency-key"), Some(key));
    assert_eq!(answer.header("idempotent-replayed"), None);
}

#[tokio::test]
async fn a_tenant_over_its_rate_reserves_nothing_and_another_is_served() {
    // Counts are kept from here on, as in every process.
    drop(chassis::telemetry::init("gateway"));
    let world = world(Limits { rate: 1, burst: 3, ..Limits::default() }).await;
    for n in 0..3 {
        // However a tenant spells itself, it is one.
        let api_key = if n == 1 { "sk_a_rotated" } else { "sk_a" };
        assert_ne!(order(&world, api_key, &format!("k{n}")).await.status, 429);
    }
    let limited = order(&world, "sk_a", "k3").await;
    assert_limited(&limited, "k3", "rate");
    assert_eq!(world.idem.state("k3"), None, "no key is reserved");
    assert_ne!(order(&world, "sk_b", "k0").await.status, 429);
    // Pages and probes belong to nobody.
    let page = send(world.client.get(format!("http://{}/docs/errors", world.api))).await;
    assert_eq!(page.status, 200);
    let metrics = send(world.client.get(format!("http://{}/metrics", world.admin))).await.text;
    let counted = |name: &str, labels: &[&str]| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.any(|line| labels.iter().all(|label| line.contains(label)))
    };
    assert!(counted("gateway_rate_limited_total", &["reason=\"rate\"", "scope=\"rest/a\""]), "{metrics}");
    assert!(
        counted("gateway_idempotency_outcomes_total", &["outcome=\"rate_limited\"", "POST /v1/orders"]),
        "{metrics}"
    );
}

#[tokio::test]
async fn an_operation_counts_as_in_flight_until_it_ends_although_its_client_has_gone() {
    let world = world(Limits { in_flight: 1, ..Limits::default() }).await;
    let (let_go, held) = watch::channel(false);
    world.orders.on("place_order", move |_: proto::PlaceOrderRequest| {
        let mut held = held.clone();
        async move {
            held.wait_for(|is_over| *is_over).await.ok();
            Ok(proto::PlaceOrderResponse { answer: placed() })
        }
    });
    let gone = world.post("/v1/orders", "first", ORDER).timeout(std::time::Duration::from_millis(300)).send();
    assert!(gone.await.is_err(), "the client hung up");
    assert_limited(&order(&world, "sk_a", "second").await, "second", "in_flight");
    assert_limited(
        &send(world.request("GET", "/v1/orders/none").header("idempotency-key", "x")).await,
        "x",
        "in_flight",
    );
    // Another tenant is served; a read, since orders are held up for everybody here.
    let url = format!("http://{}/v1/idempotency-keys/other", world.api);
    assert_eq!(send(world.client.get(url).bearer_auth("sk_b")).await.status, 404);
    let_go.send(true).unwrap();
    eventually("the operation has ended", || world.idem.state("first") == Some(StateName::Completed)).await;
    let mut second = order(&world, "sk_a", "second").await;
    // Its answer is stored a moment before its place is free.
    while second.status == 429 {
        second = order(&world, "sk_a", "second").await;
    }
    assert_eq!(second.status, 201);
}

#[tokio::test]
async fn keys_that_are_not_settled_keep_new_ones_out_until_they_are() {
    let world = world(Limits { live_keys: 2, ..Limits::default() }).await;
    places(&world);
    assert_eq!(order(&world, "sk_a", "k0").await.status, 201);
    // Of another gateway; and nobody can say what became of them.
    for key in ["stuck-1", "stuck-2"] {
        world.idem.strand(key);
    }
    let mut tried = 0;
    let limited = loop {
        tried += 1;
        let answer = order(&world, "sk_a", &format!("try-{tried}")).await;
        if answer.status == 429 {
            break answer;
        }
        assert!(tried < 200, "it is never counted");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_limited(&limited, &format!("try-{tried}"), "live_keys");
    assert_eq!(limited.header("retry-after"), Some("5"));
    // What needs no key goes on.
    assert_ne!(send(world.request("GET", "/v1/idempotency-keys/stuck-1")).await.status, 429);
}
