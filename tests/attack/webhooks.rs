//! Words of the acquirer that are not its own, or not of now, or out of order.

use std::time::{Duration, UNIX_EPOCH};

use e2e::{Reply, Store, World};
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{bystander::Bystander, wire};

const SECRET: &str = "whsec_demo";

fn now() -> u64 {
    chassis::clock::wall().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn sign(secret: &str, time: u64, body: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    format!("t={time},v1={}", hex::encode(mac.finalize().into_bytes()))
}

async fn deliver(world: &World, signature: &str, body: &str) -> Reply {
    let ask = world.ask(Method::POST, "/webhooks/acquirer").api_key("").header("acquirer-signature", signature);
    ask.bytes("application/json", body.to_owned()).send().await
}

fn event(id: &str, kind: &str, payment: &str, amount: u64) -> String {
    json!({"id": id, "type": kind, "paymentId": payment, "amount": amount, "currency": "EUR",
        "occurredAt": "2026-11-30T00:00:00Z"})
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_replayed_and_reordered_webhooks_move_no_money() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let order = world.place("order", 1).await;
    let payment = world.pay("pay", &order, "pm_pending").await.expect(202).text("id");
    let approval = event("evt_forged", "payment.approved", &payment, 1000);

    // Forged: without the secret, with another, with the right signature of something else.
    let time = now();
    let stolen = sign(SECRET, time, &event("evt_other", "payment.approved", &uuid::Uuid::new_v4().to_string(), 1000));
    let forgeries = [
        String::new(),
        format!("t={time},v1="),
        format!("t={time},v1={}", "0".repeat(64)),
        sign("", time, &approval),
        sign("whsec_guess", time, &approval),
        stolen.clone(),
        // The signature of one moment under the time of another.
        sign(SECRET, time, &approval).replacen(&time.to_string(), &(time + 1).to_string(), 1),
        format!("{stolen},{}", sign(SECRET, time - 301, &approval)),
    ];
    for forged in &forgeries {
        let refused = deliver(&world, forged, &approval).await;
        assert!([400, 401].contains(&refused.status.as_u16()), "{forged}: {}", refused.status);
    }
    assert_eq!(world.payment_status(&payment).await, "pending");
    assert_eq!(world.order_status(&order).await, "pending");

    // Signed, and of another time: recorded once, and played again.
    for stale in [time - 301, time + 400, 0, u64::MAX] {
        let refused = deliver(&world, &sign(SECRET, stale, &approval), &approval).await;
        assert!([400, 401].contains(&refused.status.as_u16()), "t={stale}: {}", refused.status);
    }
    assert_eq!(world.payment_status(&payment).await, "pending");

    // Signed, and of another amount: never adopted.
    let cheap = event("evt_cheap", "payment.approved", &payment, 1);
    deliver(&world, &sign(SECRET, now(), &cheap), &cheap).await;
    assert_eq!(world.order_status(&order).await, "pending");

    // Out of order: the refusal of the acquirer comes after its approval, and the approval many times.
    world.settle(&payment, "approved").await;
    e2e::eventually("the payment is approved", || async {
        (world.payment_status(&payment).await == "approved").then_some(())
    })
    .await;
    let decline = event("evt_late", "payment.declined", &payment, 1000);
    deliver(&world, &sign(SECRET, now(), &decline), &decline).await.expect(200);
    let (time, again) = (now(), event("evt_again", "payment.approved", &payment, 1000));
    for _ in 0..20 {
        deliver(&world, &sign(SECRET, time, &again), &again).await.expect(200);
    }
    assert_eq!(
        (world.payment_status(&payment).await.as_str(), world.order_status(&order).await.as_str()),
        ("approved", "paid")
    );
    let totals = world.acquirer_totals().await;
    assert_eq!((&totals["charges"], &totals["refunded"]), (&json!(1), &json!(0)), "{totals}");
    bystander.was_served().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forged_webhooks_disturbs_nobody() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(200 * 1024));
    let signature = format!("t={},v1={}", now(), "a".repeat(64));
    let flood = (0..200).map(|_| deliver(&world, &signature, &large));
    for refused in futures::future::join_all(flood).await {
        assert_eq!(refused.status, 401);
    }
    let settled = tokio::time::timeout(Duration::from_secs(30), bystander.was_served());
    settled.await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_that_are_only_begun_keep_no_other_out() {
    let world = World::start_with(Store::Sqlite, |settings| {
        settings.limits = idem_local::Limits { rate: 0, burst: 0, in_flight: 2, live_keys: 0 };
    })
    .await;
    let at = world.addresses().rest;
    let head = "POST /webhooks/acquirer HTTP/1.1\r\nhost: idem\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n";
    let mut begun = Vec::new();
    for _ in 0..8 {
        let mut stream = wire::connect(at).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // It is waited for from now on.
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        begun.push(stream);
    }
    let order = world.place("order", 1).await;
    let payment = world.pay("pay", &order, "pm_pending").await.expect(202).text("id");
    let approval = event("evt_genuine", "payment.approved", &payment, 1000);
    deliver(&world, &sign(SECRET, now(), &approval), &approval).await.expect(200);
    assert_eq!(world.order_status(&order).await, "paid");
    drop(begun);
    world.stop().await;
}
