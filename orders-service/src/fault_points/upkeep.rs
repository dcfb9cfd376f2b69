//! What operators and clocks ask for, and what is only read.

use super::stage::{HOLD, Round, Stage, tenant};
use crate::{catalogue::Put, outcome::RefusalReason};

pub async fn a_ticket_type_is_put_and_changed(stage: &Stage<'_>) {
    stage.open();
    stage.put(2).await;
    stage.put(5).await;
    let shown =
        stage.insist("the ticket type", |shop| async move { shop.ticket_type(stage.ticket_type.clone()).await });
    assert_eq!(shown.await.capacity, 5);
}

pub async fn a_capacity_stays_above_what_is_held(stage: &Stage<'_>) {
    stage.put(4).await;
    stage.placed(2).await;
    stage.bench.advance(HOLD / 2);
    stage.placed(1).await;
    stage.open();
    let shrink = |capacity| {
        let offer = stage.offer(capacity);
        stage.insist("shrink", move |shop| {
            let offer = offer.clone();
            async move { shop.put_ticket_type(offer).await }
        })
    };
    match shrink(2).await {
        Put::Refused(refusal) => assert_eq!(refusal.reason, RefusalReason::CapacityInUse),
        other => panic!("seats that are held are gone: {other:?}"),
    }
    // The first hold is over now, and is swept because it is in the way.
    stage.bench.advance(HOLD / 2);
    assert!(matches!(shrink(2).await, Put::Updated(_)));
}

pub async fn everything_is_read(stage: &Stage<'_>) {
    stage.put(2).await;
    let (pending, order) = (stage.placed(1).await, stage.placed(1).await);
    let payment = stage.paid(order).await;
    let operation = stage.answered.lock().unwrap().last().expect("the payment's").operation;
    stage.open();
    let link = stage.insist("the link", |shop| async move { shop.payment_link(tenant(), Some(pending)).await }).await;
    assert!(link.expect("a pending order can be paid").url.starts_with("http://localhost/pay/"));
    let seen = stage.insist("the order", |shop| async move { shop.order(tenant(), order).await }).await;
    assert_eq!(seen.status, crate::order::OrderStatus::Paid);
    let paid = stage.insist("the payment", |shop| async move { shop.payment(tenant(), payment).await }).await;
    assert_eq!((paid.id, paid.order), (payment, order));
    let whose = stage.insist("whose it is", |shop| async move { shop.tenant_of(operation).await }).await;
    assert_eq!(whose.as_deref(), Some(tenant().as_str()));
    let shown = stage.insist("the operation", |shop| async move { shop.show_operation(operation).await }).await;
    let shown = serde_json::to_value(shown).unwrap();
    assert_eq!(
        (&shown["order"]["id"], &shown["payment"]["id"]),
        (&order.to_string().into(), &payment.to_string().into())
    );
}

pub async fn a_hold_that_is_over_is_swept(stage: &Stage<'_>) {
    stage.put(3).await;
    stage.placed(2).await;
    stage.placed(1).await;
    stage.bench.advance(HOLD);
    stage.open();
    for _ in 0..8 {
        stage.rounds_later(&[Round::Sweep]).await;
        if stage.order_statuses().await == ["expired", "expired"] {
            return;
        }
    }
    panic!("holds that never lapse");
}
