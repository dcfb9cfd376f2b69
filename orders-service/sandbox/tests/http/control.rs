//! Settling, counting and outages.

use serde_json::json;

use crate::world::{World, charge};

#[tokio::test]
async fn settling_again_answers_the_same_event_and_sends_none() {
    let mut world = World::start().await;
    world.pay("p", "pm_pending").await;
    let first = world.settle("p", "approved").await;
    assert_eq!(first.0, 200);
    assert_eq!(world.settle("p", "approved").await, first);
    world.merchant.hears("payment.approved", "p").await;
    world.pay("next", "pm_approved").await;
    world.merchant.hears("payment.approved", "next").await;
    let (status, answer) = world.settle("p", "declined").await;
    assert_eq!((status, &answer["error"]), (409, &json!("payment_decided_otherwise")));
    assert_eq!(world.charges("p").await, 1);
}

#[tokio::test]
async fn settling_needs_a_known_payment_and_a_decision() {
    let world = World::start().await;
    assert_eq!(world.settle("p", "approved").await.0, 404);
    world.pay("p", "pm_pending").await;
    assert_eq!(world.settle("p", "pending").await.0, 400);
    assert_eq!(world.status("p").await.as_deref(), Some("pending"));
}

#[tokio::test]
async fn counters_tell_charges_questions_and_refunds_apart() {
    let world = World::start().await;
    assert_eq!(world.get("/sandbox/payments/p").await.0, 404);
    assert_eq!(world.status("p").await, None);
    let none = json!({"status": "none", "charges": 0, "queries": 1, "refunds": 0});
    assert_eq!(world.get("/sandbox/payments/p").await, (200, none));
    world.pay("p", "pm_approved").await;
    world.status("p").await;
    for refund in ["r1", "r2"] {
        world.put(&format!("/payments/p/refunds/{refund}"), json!({"amount": 1, "currency": "EUR"})).await;
    }
    let counted = json!({"status": "approved", "charges": 1, "queries": 2, "refunds": 2});
    assert_eq!(world.get("/sandbox/payments/p").await, (200, counted));
}

#[tokio::test]
async fn outage_refuses_merchants_and_not_the_control() {
    let mut world = World::start().await;
    world.pay("p", "pm_pending").await;
    assert_eq!(world.post("/sandbox/outage", json!({"seconds": 3600})).await, (200, json!({"seconds": 3600.0})));
    for (method, path) in [("GET", "/payments/p"), ("PUT", "/payments/q"), ("PUT", "/payments/p/refunds/r")] {
        let body = charge("pm_approved").to_string();
        let (status, answer) = world.call(method.parse().unwrap(), path, Some(&body)).await.unwrap();
        assert_eq!((status, &answer["error"]), (503, &json!("outage")), "{method} {path}");
    }
    assert_eq!(world.settle("p", "approved").await.0, 200);
    world.merchant.hears("payment.approved", "p").await;
    assert_eq!(world.get("/sandbox/payments/p").await.1["queries"], json!(0));
    assert_eq!(world.get("/sandbox/payments/q").await.0, 404);
    assert_eq!(world.post("/sandbox/outage", json!({"seconds": 3600, "status": 400})).await.0, 200);
    assert_eq!(world.pay("q", "pm_approved").await.0, 400);
    world.post("/sandbox/outage", json!({"seconds": 0})).await;
    assert_eq!(world.status("p").await.as_deref(), Some("approved"));
    assert_eq!(world.pay("q", "pm_approved").await.0, 200);
}

#[tokio::test]
async fn outage_of_no_sensible_length_is_refused() {
    let world = World::start().await;
    for seconds in [json!(-1), json!("soon"), json!(1e300), json!(null), json!(18_000_000_000_000_000_000_u64)] {
        let (status, _) = world.post("/sandbox/outage", json!({"seconds": seconds})).await;
        assert_eq!(status, 400, "{seconds}");
    }
    assert_eq!(world.post("/sandbox/outage", json!({"seconds": 1, "status": 200})).await.0, 400);
    assert_eq!(world.pay("p", "pm_approved").await.0, 200);
}
