//! What the merchant is told, and how it knows who tells it.

use std::time::UNIX_EPOCH;

use axum::http::StatusCode;
use chassis::clock;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::world::{Delivery, SECRET, World};

/// HMAC written out as RFC 2104 has it, so that the sandbox is not checked against its own library.
fn hmac_sha256(key: &[u8], message: &[u8]) -> String {
    assert!(key.len() <= 64, "longer keys would have to be hashed first");
    let pad = |byte: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ byte).collect() };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    hex::encode(Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize())
}

/// The time under the signature, which must hold.
fn verified(delivery: &Delivery) -> u64 {
    let (t, v1) = delivery.signature.split_once(',').unwrap();
    let (t, v1) = (t.strip_prefix("t=").unwrap(), v1.strip_prefix("v1=").unwrap());
    let signed = [t.as_bytes(), b".", &delivery.bytes].concat();
    assert_eq!(v1, hmac_sha256(SECRET.as_bytes(), &signed));
    t.parse().unwrap()
}

#[tokio::test]
async fn event_says_what_was_decided_about_which_payment_and_is_signed_now() {
    let mut world = World::start().await;
    let before = clock::wall().duration_since(UNIX_EPOCH).unwrap().as_secs();
    world.pay("p", "pm_pending").await;
    let event_id = world.settle("p", "approved").await.1["eventId"].clone();
    let delivery = world.merchant.next().await;
    let after = clock::wall().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!((before..=after).contains(&verified(&delivery)));
    let occurred = clock::parse_rfc3339(delivery.event["occurredAt"].as_str().unwrap()).unwrap();
    assert!((before..=after).contains(&occurred.duration_since(UNIX_EPOCH).unwrap().as_secs()));
    let expected = json!({"id": event_id, "type": "payment.approved", "paymentId": "p", "amount": 2000,
        "currency": "EUR", "occurredAt": delivery.event["occurredAt"]});
    assert_eq!(delivery.event, expected);
}

#[tokio::test]
async fn delivery_is_tried_again_with_the_same_bytes_until_accepted() {
    let mut world = World::start().await;
    world.merchant.answers_next(StatusCode::INTERNAL_SERVER_ERROR);
    world.merchant.answers_next(StatusCode::FOUND);
    world.pay("p", "pm_approved").await;
    let [first, second, third] =
        [world.merchant.next().await, world.merchant.next().await, world.merchant.next().await];
    assert!(first.bytes == second.bytes && second.bytes == third.bytes);
    let times = [verified(&first), verified(&second), verified(&third)];
    // Tries are whole seconds apart but for the moment it takes to sign, so two neighbours may share a second.
    assert!(times.is_sorted() && times[0] < times[2], "signed anew each time: {times:?}");
}

#[tokio::test]
async fn accepted_event_is_redelivered_on_request_with_the_same_bytes() {
    let mut world = World::start().await;
    world.pay("p", "pm_declined").await;
    let first = world.merchant.next().await;
    let event_id = first.event["id"].as_str().unwrap();
    let redeliver = format!("/sandbox/webhooks/{event_id}/redeliver");
    assert_eq!(world.post(&redeliver, json!({})).await, (202, json!({"eventId": event_id})));
    let second = world.merchant.next().await;
    verified(&second);
    assert_eq!(first.bytes, second.bytes);
    let (status, answer) = world.post("/sandbox/webhooks/evt_none/redeliver", json!({})).await;
    assert_eq!((status, &answer["error"]), (404, &json!("event_not_found")));
}

#[tokio::test]
async fn lost_webhook_comes_only_when_redelivered() {
    let mut world = World::start().await;
    world.pay("lost", "pm_pending").await;
    assert_eq!(world.post("/sandbox/webhooks", json!({"enabled": false})).await, (200, json!({"enabled": false})));
    let event_id = world.settle("lost", "approved").await.1["eventId"].as_str().unwrap().to_owned();
    world.post(&format!("/sandbox/webhooks/{event_id}/redeliver"), json!({})).await;
    let event = world.merchant.hears("payment.approved", "lost").await;
    assert_eq!(event["id"], json!(event_id));
    world.post("/sandbox/webhooks", json!({"enabled": true})).await;
    world.pay("told", "pm_approved").await;
    world.merchant.hears("payment.approved", "told").await;
}
