//! Events of the acquirer: believed when signed, applied once, never against what is settled.

use std::time::Duration;

use chassis::clock;
use idem_proto::orders::v1::{
    OrderStatus, PaymentStatus, RefusalReason, WebhookRejection, close_response::Outcome as Closing,
    handle_webhook_response::Outcome, lookup_response::Outcome as Found,
};

use crate::{
    on_both_stores,
    world::{Intent, Says as _, World, event, settled_refusal},
};

on_both_stores!(
    an_event_settles_a_pending_payment_once,
    an_event_during_the_call_that_charges_is_the_same_answer,
    a_forged_old_or_broken_delivery_is_not_kept,
    an_event_that_contradicts_changes_nothing,
    an_event_before_its_payment_waits_for_it,
    an_event_about_other_money_is_never_adopted,
    an_event_of_an_unknown_kind_is_accepted_and_ignored,
    an_event_about_a_payment_that_was_given_up_sends_its_money_back_once,
);

fn is_duplicate(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Accepted(accepted) => accepted.duplicate,
        Outcome::Rejected(rejected) => panic!("{:?}", rejected.reason()),
    }
}

async fn an_event_settles_a_pending_payment_once(world: World) {
    let (order, intent) = (world.ordered(2).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    let body = event("evt-1", "payment.approved", &intent.payment(), 2000);
    let outcomes = futures::future::join_all((0..20).map(|_| world.deliver(&body))).await;
    assert_eq!(outcomes.iter().filter(|outcome| !is_duplicate(outcome)).count(), 1);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (2, 0, 98));
    world.advance(Duration::from_secs(3600));
    assert!(is_duplicate(&world.deliver(&body).await));
    // Another event that says the same says nothing new.
    assert!(!is_duplicate(&world.deliver(&event("evt-2", "payment.approved", &intent.payment(), 2000)).await));
    assert_eq!(world.stock("general").await, (2, 0, 98));
    // It wrote the operation's final answer, without anybody asking the acquirer.
    assert!(matches!(world.look(&intent, 2, true).await.unwrap(), Found::Settled(_)));

    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.deliver(&event("evt-3", "payment.declined", &intent.payment(), 1000)).await;
    assert_eq!(settled_refusal(world.lookup(&intent, 2).await.unwrap()), RefusalReason::PaymentDeclined);
}

async fn an_event_during_the_call_that_charges_is_the_same_answer(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let charging = world.pay(&intent, 1, &order.id, "pm_gated");
    let telling = async {
        world
            .eventually("the charge is on its way", || async { world.script.charge_calls(&intent.payment()) == 1 })
            .await;
        world.deliver(&event("evt-early", "payment.approved", &intent.payment(), 1000)).await;
        assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
        world.script.open_gate();
    };
    let (answer, ()) = tokio::join!(charging, telling);
    let answer = answer.unwrap();
    assert_eq!((answer.payment().status(), answer.replayed), (PaymentStatus::Approved, false));
    assert_eq!(world.stock("general").await, (1, 0, 99));
}

async fn a_forged_old_or_broken_delivery_is_not_kept(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    let body = event("evt-1", "payment.approved", &intent.payment(), 1000);
    let sign = |secret, at| acquirer_sandbox::signature::sign(secret, at, body.as_bytes());
    let old = clock::wall() - Duration::from_secs(301);
    let cases = [
        (sign("whsec_other", clock::wall()), WebhookRejection::BadSignature),
        (sign("whsec_demo", old), WebhookRejection::TooOld),
        (String::new(), WebhookRejection::Malformed),
        ("t=1".to_owned(), WebhookRejection::Malformed),
    ];
    for (signature, reason) in cases {
        match world.deliver_signed(&body, &signature).await {
            Outcome::Rejected(rejected) => assert_eq!(rejected.reason(), reason),
            Outcome::Accepted(_) => panic!("believed: {signature}"),
        }
    }
    for broken in ["", "{}", "[]", r#"{"id":"e","type":"payment.approved"}"#, r#"{"id":"","type":"x"}"#] {
        match world.deliver(broken).await {
            Outcome::Rejected(rejected) => assert_eq!(rejected.reason(), WebhookRejection::Malformed, "{broken}"),
            Outcome::Accepted(_) => panic!("believed: {broken}"),
        }
    }
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Pending);
    assert!(!is_duplicate(&world.deliver(&body).await), "the forgery has not taken its place");
}

async fn an_event_that_contradicts_changes_nothing(world: World) {
    let (order, intent) = world.paid(1).await;
    world.deliver(&event("evt-1", "payment.declined", &intent.payment(), 1000)).await;
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.payment(&intent).await.status(), PaymentStatus::Approved);

    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_declined").await.unwrap();
    world.deliver(&event("evt-2", "payment.approved", &intent.payment(), 1000)).await;
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Pending);
    assert_eq!(world.payment(&intent).await.status(), PaymentStatus::Declined);
    assert_eq!(world.stock("general").await, (1, 1, 98));
}

async fn an_event_before_its_payment_waits_for_it(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let body = event("evt-1", "payment.approved", &intent.payment().to_uppercase(), 1000);
    assert!(!is_duplicate(&world.deliver(&body).await));
    world.script.set_down(true);
    // The charge is not heard; whoever is first, this call or the sweep of the inbox, the event pays the order.
    world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap();
    world.eventually_order(&order.id, OrderStatus::Paid).await;
    assert!(is_duplicate(&world.deliver(&body).await));
    assert_eq!(
        world.pay(&intent, 2, &order.id, "pm_approved").await.unwrap().payment().status(),
        PaymentStatus::Approved
    );
}

async fn an_event_about_other_money_is_never_adopted(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    world.deliver(&event("evt-1", "payment.approved", &intent.payment(), 999)).await;
    world.deliver(&event("evt-2", "payment.approved", &intent.payment(), 1000).replace("EUR", "USD")).await;
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Pending);
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Pending(_)));
}

async fn an_event_of_an_unknown_kind_is_accepted_and_ignored(world: World) {
    let (order, intent) = world.paid(1).await;
    let body = event("evt-1", "payment.disputed", &intent.payment(), 1000);
    assert!(!is_duplicate(&world.deliver(&body).await));
    assert!(is_duplicate(&world.deliver(&body).await));
    assert!(!is_duplicate(&world.deliver(r#"{"id":"evt-2","type":"payout.sent"}"#).await));
    assert!(!is_duplicate(&world.deliver(&event("evt-3", "payment.approved", "not-ours", 5)).await));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
}

async fn an_event_about_a_payment_that_was_given_up_sends_its_money_back_once(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    world.script.land(&intent.payment());
    // Heard by the event alone, many times at once: taken note of, never adopted.
    let body = event("evt-late", "payment.approved", &intent.payment(), 1000);
    let outcomes = futures::future::join_all((0..20).map(|_| world.deliver(&body))).await;
    assert_eq!(outcomes.iter().filter(|outcome| !is_duplicate(outcome)).count(), 1);
    world
        .eventually("it is refunded", || async { world.payment(&intent).await.status() == PaymentStatus::Refunded })
        .await;
    assert_eq!((world.script.refunds(&intent.payment()), world.script.refund_calls()), (1, 1));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Pending);
    world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(world.stock("general").await, (1, 0, 99));
}
