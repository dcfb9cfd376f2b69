//! Money going back.

use serde_json::{Value, json};

use crate::world::{World, payment};

fn euros(amount: u64) -> Value {
    json!({"amount": amount, "currency": "EUR"})
}

async fn refund(world: &World, refund_id: &str, body: Value) -> (u16, Value) {
    world.put(&format!("/payments/p/refunds/{refund_id}"), body).await
}

#[tokio::test]
async fn refund_happens_once_per_id_and_is_seen_on_the_payment() {
    let world = World::start().await;
    world.pay("p", "pm_approved").await;
    let refunded = json!({"id": "r", "paymentId": "p", "status": "refunded", "amount": 2000, "currency": "EUR"});
    for _repeat in 0..2 {
        assert_eq!(refund(&world, "r", euros(2000)).await, (200, refunded.clone()));
    }
    assert_eq!(world.get("/sandbox/payments/p").await.1["refunds"], json!(1));
    assert_eq!(world.get("/sandbox/totals").await.1, json!({"charges": 1, "captured": 2000, "refunded": 2000}));
    let mut expected = payment("p", "approved", "pm_approved");
    expected["refunds"] = json!([{"id": "r", "amount": 2000, "currency": "EUR"}]);
    assert_eq!(world.get("/payments/p").await, (200, expected));
}

#[tokio::test]
async fn refusals_give_nothing_back() {
    let world = World::start().await;
    let refused = async |body: Value| {
        let (status, answer) = refund(&world, "r", body).await;
        (status, answer["error"].as_str().unwrap().to_owned())
    };
    assert_eq!(refused(euros(1)).await, (404, "payment_not_found".into()));
    world.pay("p", "pm_pending").await;
    assert_eq!(refused(euros(1)).await, (409, "payment_not_approved".into()));
    world.settle("p", "approved").await;
    assert_eq!(refused(euros(2001)).await, (422, "refund_exceeds_payment".into()));
    assert_eq!(refused(json!({"amount": 1, "currency": "USD"})).await, (422, "refund_currency_differs".into()));
    assert_eq!(refused(json!({"amount": -1, "currency": "EUR"})).await, (400, "invalid_request".into()));
    assert_eq!(world.get("/sandbox/totals").await.1["refunded"], json!(0));
    assert_eq!(refund(&world, "r", euros(1500)).await.0, 200);
    assert_eq!(refused(euros(1)).await, (409, "refund_id_reuse".into()));
    assert_eq!(refund(&world, "r2", euros(501)).await.0, 422);
    assert_eq!(refund(&world, "r2", euros(500)).await.0, 200);
    assert_eq!(world.get("/sandbox/totals").await.1["refunded"], json!(2000));
}
