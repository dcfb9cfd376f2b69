//! Payments whose answer does not come, comes late, or says something else.

use std::time::Duration;

use idem_proto::orders::v1::{
    Label, OrderStatus, PaymentStatus, RefusalReason, lookup_response::Outcome as Found, result::Kind,
};
use orders_service::payment::Verdict;
use tonic::Code;

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World, why},
};

on_both_stores!(
    a_pending_payment_keeps_everybody_else_out,
    a_pending_payment_is_settled_by_asking_when_no_webhook_comes,
    a_pending_payment_that_is_declined_frees_the_order_for_another,
    a_charge_whose_answer_was_lost_is_found_by_asking_once,
    a_charge_that_failed_is_unknown_and_resumed_under_the_same_id,
    another_amount_is_never_adopted,
    a_call_without_time_starts_nothing,
    a_restart_between_recording_and_charging_is_resumed,
    the_hold_lives_on_while_a_payment_is_undecided,
);

async fn a_pending_payment_keeps_everybody_else_out(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let answer = world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    assert_eq!(answer.label(), Label::Unknown);
    match answer.result.clone().unwrap().kind {
        Some(Kind::Payment(payment)) => assert_eq!(payment.status(), PaymentStatus::Pending),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap(), answer, "a repeat of its token");
    let in_progress = (Label::NoEffect, RefusalReason::PaymentInProgress);
    assert_eq!(world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().refusal(), in_progress);
    assert_eq!(world.confirm(None, 0, &order.id).await.unwrap().refusal(), in_progress);
    let not_cancellable = (Label::NoEffect, RefusalReason::NotCancellable);
    assert_eq!(world.cancel(None, 0, &order.id).await.unwrap().refusal(), not_cancellable);
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Pending(_)));
    // Whoever recovers it resumes it.
    let resumed = world.pay(&intent, 2, &order.id, "pm_pending").await.unwrap();
    assert_eq!((resumed.label(), world.script.charge_calls(&intent.payment())), (Label::Unknown, 2));
}

async fn a_pending_payment_is_settled_by_asking_when_no_webhook_comes(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    // Asked at growing intervals: within a quarter of an hour a score of times, not a thousand.
    for _ in 0..15 {
        let asked = world.script.queries(&intent.payment());
        world.advance(Duration::from_secs(60));
        world.eventually("it is asked for", || async { world.script.queries(&intent.payment()) > asked }).await;
    }
    assert!(world.script.queries(&intent.payment()) < 40, "{}", world.script.queries(&intent.payment()));
    world.script.decide(&intent.payment(), Verdict::Approved);
    world.advance(Duration::from_secs(60));
    world.eventually_order(&order.id, OrderStatus::Paid).await;
    let asked = world.script.queries(&intent.payment());
    // Nobody but the watch has heard of it, and the look-up finds it in the rows.
    assert!(matches!(world.look(&intent, 2, true).await.unwrap(), Found::Settled(_)));
    assert_eq!(world.script.queries(&intent.payment()), asked);
}

async fn a_pending_payment_that_is_declined_frees_the_order_for_another(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.script.decide(&intent.payment(), Verdict::Declined);
    match world.lookup(&intent, 2).await.unwrap() {
        Found::Settled(settled) => assert_eq!(settled.label(), Label::Final),
        other => panic!("{other:?}"),
    }
    world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().payment();
}

async fn a_charge_whose_answer_was_lost_is_found_by_asking_once(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_charge_then_drop").await.unwrap().payment();
    let id = intent.payment();
    assert_eq!((world.script.charge_calls(&id), world.script.queries(&id)), (1, 1));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);

    let (order, intent) = (world.ordered(1).await, Intent::new());
    let answer = world.pay(&intent, 1, &order.id, "pm_pending_then_drop").await.unwrap();
    assert!(answer.label() == Label::Unknown && answer.result.is_some());
}

async fn a_charge_that_failed_is_unknown_and_resumed_under_the_same_id(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.script.set_down(true);
    let answer = world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap();
    assert!(answer.is_unknown());
    assert_eq!(world.payment(&intent).await.status(), PaymentStatus::Pending);
    assert_eq!(why(world.lookup(&intent, 2).await), (Code::Unavailable, "ACQUIRER_UNREACHABLE".to_owned()));
    world.script.set_down(false);
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
    // The hold is over, but the payment was recorded in time: the guards are behind it.
    world.advance(HOLD + Duration::from_secs(1));
    world.pay(&intent, 2, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
}

async fn another_amount_is_never_adopted(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_other_amount").await.unwrap().is_unknown());
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Pending(_)));
    assert!(world.pay(&intent, 2, &order.id, "pm_other_amount").await.unwrap().is_unknown());
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Pending);
    assert_eq!(world.payment(&intent).await.status(), PaymentStatus::Pending);
    assert_eq!(world.script.refunds(&intent.payment()), 0);
}

async fn a_call_without_time_starts_nothing(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let answer = world.pay_within(Duration::ZERO, &intent, 1, &order.id, "pm_approved").await;
    assert!(answer.is_err());
    assert!(world.payment_of("demo-a", &intent.payment()).await.is_err(), "nothing was recorded");
    assert_eq!(world.script.charge_calls(&intent.payment()), 0);
}

async fn a_restart_between_recording_and_charging_is_resumed(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.script.set_down(true);
    assert!(world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap().is_unknown());
    let script = std::sync::Arc::clone(&world.script);
    script.set_down(false);
    let store = world.stop().await;
    let mut world = World::with(store, orders_service::Config::default(), script.clone()).await;
    world.script = script;
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
    world.pay(&intent, 2, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(world.stock("general").await, (1, 0, 99));
}

async fn the_hold_lives_on_while_a_payment_is_undecided(world: World) {
    world.put("general", 50, 1000).await;
    let (order, intent) = (world.ordered(50).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.advance(HOLD + HOLD - Duration::from_secs(60));
    assert_eq!(world.stock("general").await, (0, 50, 0));
    let sold_out = world.place(&Intent::new(), 1, 1).await.unwrap();
    assert_eq!(sold_out.refusal(), (Label::NoEffect, RefusalReason::SoldOut));
    // At the latest until the hold has lasted twice as long.
    world.advance(Duration::from_secs(61));
    assert_eq!(world.stock("general").await, (0, 0, 50));
    world.eventually_order(&order.id, OrderStatus::Expired).await;
}
