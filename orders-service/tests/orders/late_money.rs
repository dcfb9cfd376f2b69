//! Approvals that come when the hold is gone.

use std::time::Duration;

use idem_proto::orders::v1::{Label, Order, OrderStatus, PaymentStatus, RefusalReason};
use orders_service::payment::Verdict;

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World, event, settled_refusal},
};

on_both_stores!(
    seats_that_are_still_free_are_taken_again,
    seats_that_are_gone_are_refunded_once,
    seats_under_a_hold_that_is_over_count_as_free,
    an_approval_before_the_sweeper_came_pays_out_of_the_hold,
    a_late_decline_leaves_the_order_expired,
);

/// An order whose hold is over, twice, while its payment is pending.
async fn expired_with_pending_payment(world: &World, quantity: u32) -> (Order, Intent) {
    world.put("general", 50, 1000).await;
    let (order, intent) = (world.ordered(quantity).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.advance(HOLD * 2);
    world.eventually_order(&order.id, OrderStatus::Expired).await;
    world.eventually("the seats are free", || async { world.stock("general").await.1 == 0 }).await;
    (order, intent)
}

async fn seats_that_are_still_free_are_taken_again(world: World) {
    let (order, intent) = expired_with_pending_payment(&world, 30).await;
    world.script.decide(&intent.payment(), Verdict::Approved);
    world.advance(Duration::from_secs(60));
    world.eventually_order(&order.id, OrderStatus::Paid).await;
    assert_eq!(world.stock("general").await, (30, 0, 20));
    let answer = world.pay(&intent, 2, &order.id, "pm_pending").await.unwrap();
    assert!(answer.replayed);
    assert_eq!(answer.payment().status(), PaymentStatus::Approved);
}

async fn seats_that_are_gone_are_refunded_once(world: World) {
    let (order, intent) = expired_with_pending_payment(&world, 30).await;
    let (rival, _) = world.paid(25).await;
    world.script.decide(&intent.payment(), Verdict::Approved);
    assert_eq!(settled_refusal(world.lookup(&intent, 2).await.unwrap()), RefusalReason::HoldExpiredRefunded);
    world.deliver(&event("evt-late", "payment.approved", &intent.payment(), 30_000)).await;
    world
        .eventually("it is refunded", || async { world.payment(&intent).await.status() == PaymentStatus::Refunded })
        .await;
    assert_eq!((world.script.refunds(&intent.payment()), world.script.refund_calls()), (1, 1));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Expired, "the order keeps its status");
    assert_eq!(world.order(&rival.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (25, 0, 25));
    let answer = world.pay(&intent, 3, &order.id, "pm_pending").await.unwrap();
    assert_eq!(answer.refusal(), (Label::Final, RefusalReason::HoldExpiredRefunded));
}

async fn seats_under_a_hold_that_is_over_count_as_free(world: World) {
    let (order, intent) = expired_with_pending_payment(&world, 30).await;
    let rival = world.ordered(50).await;
    world.script.decide(&intent.payment(), Verdict::Approved);
    // The rival's hold is over at this moment, whether or not the sweeper has seen it.
    world.advance(HOLD);
    world.lookup(&intent, 2).await.unwrap();
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.order(&rival.id).await.status(), OrderStatus::Expired);
    assert_eq!(world.stock("general").await, (30, 0, 20));
}

async fn an_approval_before_the_sweeper_came_pays_out_of_the_hold(world: World) {
    world.put("general", 50, 1000).await;
    let (order, intent) = (world.ordered(50).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.script.decide(&intent.payment(), Verdict::Approved);
    world.advance(HOLD * 2);
    // Whoever is first, the sweeper or the approval: nobody else has the seats, so the order is paid.
    world.lookup(&intent, 2).await.unwrap();
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (50, 0, 0));
}

async fn a_late_decline_leaves_the_order_expired(world: World) {
    let (order, intent) = expired_with_pending_payment(&world, 10).await;
    world.script.decide(&intent.payment(), Verdict::Declined);
    assert_eq!(settled_refusal(world.lookup(&intent, 2).await.unwrap()), RefusalReason::PaymentDeclined);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Expired);
    assert_eq!(world.stock("general").await, (0, 0, 50));
}
