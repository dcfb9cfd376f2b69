//! A tenant that asks without end, on limits: it is told when to come back, and the other is served.

use std::time::Duration;

use e2e::{Store, World};
use futures::StreamExt as _;
use http::Method;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_tenant_is_refused_and_the_other_is_served_at_its_own_pace() {
    let world = World::start_with(Store::Sqlite, |settings| {
        settings.limits = gateway_limits(20, 20, 8);
    })
    .await;
    world.put_ticket_type("field", 100_000).await.expect(201);
    let flood = futures::stream::iter(0..400).map(|n| {
        let ask = world.ask(Method::POST, "/v1/orders").key(&format!("flood-{n}"));
        ask.json(&World::order_body_of("field", 1)).send()
    });
    let quiet = async {
        for n in 0..15 {
            let ask = world.ask(Method::POST, "/v1/orders").api_key("sk_demo_b").key(&format!("quiet-{n}"));
            ask.json(&World::order_body_of("field", 1)).send().await.expect(201);
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    };
    let (answers, ()) = tokio::join!(flood.buffer_unordered(64).collect::<Vec<_>>(), quiet);
    let (served, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert!(served.len() >= 8 && refused.len() > 50, "{} served, {} refused", served.len(), refused.len());
    for answer in &refused {
        let problem = answer.clone().expect_problem(429, "rate_limited", None, true);
        assert!(problem.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        assert!(["rate", "in_flight"].contains(&problem.json()["details"]["reason"].as_str().unwrap()));
    }
    // Nothing of a refusal is remembered: the same request is as new when its time has come.
    let key = refused[0].header("idempotency-key").unwrap().to_owned();
    let again = e2e::eventually("its time has come", || async {
        let ask = world.ask(Method::POST, "/v1/orders").key(&key).json(&World::order_body_of("field", 1));
        Some(ask.send().await).filter(|answer| answer.status != 429)
    });
    assert!(!again.await.expect(201).is_replay());
    assert_eq!(world.ticket_type("field").await["held"], served.len() + 15 + 1);
    world.stop().await;
}

fn gateway_limits(rate: u32, burst: u32, in_flight: u32) -> idem_local::Limits {
    idem_local::Limits { rate, burst, in_flight, live_keys: 0 }
}
