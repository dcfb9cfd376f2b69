//! Tenants who choose the same keys, by chance or on purpose.

use std::collections::BTreeSet;

use e2e::{Reply, World, eventually, on_both_stores};
use futures::StreamExt as _;
use http::Method;
use serde_json::Value;

const TENANTS: [&str; 2] = ["sk_demo_a", "sk_demo_b"];

async fn order(world: &World, api_key: &str, key: &str, quantity: u32) -> Reply {
    let ask = || world.ask(Method::POST, "/v1/orders").api_key(api_key).key(key);
    eventually(&format!("{key} is answered"), || async {
        let reply = ask().json(&World::order_body_of("field", quantity)).send().await;
        // A busy machine may not keep the two seconds of a Reserve.
        (reply.status != 503).then_some(reply)
    })
    .await
}

/// What an answer tells, apart from which request it was.
fn told(reply: &Reply) -> (u16, Vec<String>, Value) {
    let mut body = reply.json();
    body.as_object_mut().unwrap().remove("traceId");
    let mut headers: Vec<String> = reply.headers.keys().map(|name| name.to_string()).collect();
    headers.sort();
    (reply.status.as_u16(), headers, body)
}

on_both_stores! {
    async fn the_same_hundred_keys_of_two_tenants_are_two_hundred_orders(world: World) {
        world.put_ticket_type("field", 1000).await.expect(201);
        let asked = (1..=100).flat_map(|n| TENANTS.map(|tenant| (tenant, n)));
        let world = &world;
        let ids: Vec<(&str, String)> = futures::stream::iter(asked)
            .map(|(tenant, n)| async move {
                let first = order(world, tenant, &n.to_string(), 1).await.expect(201);
                assert!(!first.is_replay(), "{tenant} {n}");
                (tenant, first.text("id"))
            })
            .buffered(16)
            .collect()
            .await;
        let distinct: BTreeSet<&String> = ids.iter().map(|(_, id)| id).collect();
        assert_eq!(distinct.len(), 200);
        assert_eq!(world.ticket_type("field").await["held"], 200);
        // Each sees its own and not the other's; and a retry gets its own.
        for (place, (tenant, id)) in ids.iter().enumerate().step_by(11) {
            for other in TENANTS {
                let read = world.ask(Method::GET, &format!("/v1/orders/{id}")).api_key(other).send().await;
                assert_eq!(read.status, if other == *tenant { 200 } else { 404 }, "{tenant} {other}");
            }
            let replay = order(world, tenant, &(place / 2 + 1).to_string(), 1).await.expect(201);
            assert!(replay.is_replay() && replay.text("id") == *id, "{tenant} {place}");
        }
    }

    async fn a_key_that_another_tenant_took_first_is_as_free_as_any(world: World) {
        world.put_ticket_type("field", 10).await.expect(201);
        order(&world, "sk_demo_b", "order-4711", 5).await.expect(201);
        // Nothing tells the taken key from one that nobody has: not what is said, nor how it is said.
        let taken = world.key_state("order-4711").await.expect_problem(404, "not_found", None, false);
        let fresh = world.key_state("order-4712").await.expect_problem(404, "not_found", None, false);
        assert_eq!(told(&taken), told(&fresh));
        for key in ["order-4711", "order-4712"] {
            let placed = order(&world, "sk_demo_a", key, 1).await.expect(201);
            assert!(!placed.is_replay(), "{key}");
            assert_eq!(world.key_state(key).await.expect(200).json()["attempts"], 1, "{key}");
        }
        assert!(order(&world, "sk_demo_b", "order-4711", 5).await.expect(201).is_replay());
        assert_eq!(world.ticket_type("field").await["held"], 7);
    }
}
