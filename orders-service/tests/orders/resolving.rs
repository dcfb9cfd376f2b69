//! What happened to this operation? And giving up what is unknown everywhere.

use std::time::Duration;

use idem_proto::orders::v1::{
    Label, OperationKind, OrderStatus, PaymentStatus, RefusalReason, close_response::Outcome as Closing,
    lookup_response::Outcome as Found,
};
use orders_service::payment::Verdict;
use tonic::Code;

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World, settled_refusal, why},
};

on_both_stores!(
    a_look_up_answers_with_the_kept_result,
    a_refusal_is_settled_for_its_token_and_unknown_for_a_higher,
    the_background_asks_only_when_it_is_due,
    closing_frees_the_order_and_a_late_charge_is_refunded_once,
    what_refuses_a_repeat_says_nothing_about_the_try_before,
    closing_finds_what_landed_since,
    a_closed_payment_is_reopened_under_the_same_id,
    a_closed_payment_is_not_reopened_once_another_has_paid,
    nobody_is_told_that_nothing_was_charged_before_the_acquirer_says_so,
    a_closed_payment_is_watched_for_a_day,
    a_closed_payment_is_not_watched_for_ever,
    closing_what_has_no_payment_changes_nothing,
);

async fn a_look_up_answers_with_the_kept_result(world: World) {
    let intent = Intent::new();
    let placed = world.place(&intent, 1, 1).await.unwrap();
    world.pay(&Intent::new(), 1, &placed.order().id, "pm_approved").await.unwrap();
    for (token, background) in [(1, false), (2, true), (3, false)] {
        match world.look(&intent, token, background).await.unwrap() {
            Found::Settled(settled) => {
                assert_eq!((settled.label(), settled.result.as_ref()), (Label::Final, placed.result.as_ref()));
                assert_eq!(settled.result.unwrap().operation(), OperationKind::PlaceOrder);
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn a_refusal_is_settled_for_its_token_and_unknown_for_a_higher(world: World) {
    let intent = Intent::new();
    let refused = world.place(&intent, 1, 50).await.unwrap();
    assert_eq!(refused.label(), Label::Final);
    let (rival, intent) = (Intent::new(), Intent::new());
    world.place(&rival, 1, 50).await.unwrap().order();
    let refused = world.place(&intent, 1, 1).await.unwrap();
    match world.lookup(&intent, 1).await.unwrap() {
        Found::Settled(settled) => assert_eq!((settled.label(), settled.result), (Label::NoEffect, refused.result)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
}

async fn the_background_asks_only_when_it_is_due(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    // The watch takes its turns; let it get to a long interval.
    for _ in 0..7 {
        let asked = world.script.queries(&intent.payment());
        world.advance(Duration::from_secs(60));
        world.eventually("it is asked for", || async { world.script.queries(&intent.payment()) > asked }).await;
    }
    let asked = world.script.queries(&intent.payment());
    for token in 2..12 {
        assert!(matches!(world.look(&intent, token, true).await.unwrap(), Found::Pending(_)));
    }
    assert_eq!(world.script.queries(&intent.payment()), asked, "what was last learnt is the answer");
    assert!(matches!(world.look(&intent, 12, false).await.unwrap(), Found::Pending(_)));
    assert_eq!(world.script.queries(&intent.payment()), asked + 1, "for a client it is asked at once");
}

async fn closing_frees_the_order_and_a_late_charge_is_refunded_once(world: World) {
    let (order, intent, rival) = (world.ordered(1).await, Intent::new(), Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
    let in_progress = (Label::NoEffect, RefusalReason::PaymentInProgress);
    assert_eq!(world.pay(&rival, 1, &order.id, "pm_approved").await.unwrap().refusal(), in_progress);
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    assert_eq!(world.payment(&intent).await.status(), PaymentStatus::Pending, "closed, and nothing found");
    world.pay(&rival, 2, &order.id, "pm_approved").await.unwrap().payment();

    world.script.land(&intent.payment());
    world.advance(Duration::from_secs(120));
    world
        .eventually("the late charge is refunded", || async {
            world.payment(&intent).await.status() == PaymentStatus::Refunded
        })
        .await;
    assert_eq!(world.script.refunds(&intent.payment()), 1);
    assert_eq!(world.script.refunds(&rival.payment()), 0);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (1, 0, 99));
    assert_eq!(settled_refusal(world.lookup(&intent, 3).await.unwrap()), RefusalReason::PaymentRefunded);
    let answer = world.pay(&intent, 4, &order.id, "pm_late").await.unwrap();
    assert_eq!(answer.refusal(), (Label::Final, RefusalReason::PaymentRefunded));
}

async fn what_refuses_a_repeat_says_nothing_about_the_try_before(world: World) {
    let (order, intent, rival) = (world.ordered(1).await, Intent::new(), Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late_then_refused").await.unwrap().is_unknown());
    assert!(world.pay(&intent, 2, &order.id, "pm_late_then_refused").await.unwrap().is_unknown());
    assert_eq!(world.script.charge_calls(&intent.payment()), 2);
    let in_progress = (Label::NoEffect, RefusalReason::PaymentInProgress);
    assert_eq!(world.pay(&rival, 1, &order.id, "pm_approved").await.unwrap().refusal(), in_progress);
    // Neither when it was given up in between.
    assert!(matches!(world.close(&intent, 3).await.unwrap(), Closing::Closed(_)));
    assert!(world.pay(&intent, 4, &order.id, "pm_late_then_refused").await.unwrap().is_unknown());
    assert_eq!(world.script.charge_calls(&intent.payment()), 3);
    assert!(matches!(world.close(&intent, 5).await.unwrap(), Closing::Closed(_)));
    world.pay(&rival, 2, &order.id, "pm_approved").await.unwrap().payment();

    world.script.land(&intent.payment());
    world.advance(Duration::from_secs(120));
    world.eventually("it goes back", || async { world.script.refunds(&intent.payment()) == 1 }).await;
    assert_eq!(world.script.refunds(&rival.payment()), 0);

    // Of a first try it is the end.
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let declined = (Label::Final, RefusalReason::PaymentDeclined);
    assert_eq!(world.pay(&intent, 1, &order.id, "pm_refused").await.unwrap().refusal(), declined);
}

async fn closing_finds_what_landed_since(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
    world.script.land(&intent.payment());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Settled(_)));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);

    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.pay(&intent, 1, &order.id, "pm_pending").await.unwrap();
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Pending(_)));
    world.script.set_down(true);
    assert_eq!(why(world.close(&intent, 2).await).0, Code::Unavailable);
    assert_eq!(why(world.close(&intent, 1).await).0, Code::FailedPrecondition);
}

async fn a_closed_payment_is_reopened_under_the_same_id(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.script.set_down(true);
    assert!(world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap().is_unknown());
    world.script.set_down(false);
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    let payment = world.pay(&intent, 3, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(payment.id, intent.payment());
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
}

async fn a_closed_payment_is_not_reopened_once_another_has_paid(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    world.script.set_down(true);
    assert!(world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap().is_unknown());
    world.script.set_down(false);
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().payment();
    let answer = world.pay(&intent, 3, &order.id, "pm_approved").await.unwrap();
    assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::NotPending));
    assert_eq!(world.script.charge_calls(&intent.payment()), 1);
    // Nor does it keep a paid order from being cancelled.
    world.cancel(None, 0, &order.id).await.unwrap().order();
}

async fn nobody_is_told_that_nothing_was_charged_before_the_acquirer_says_so(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    world.advance(HOLD);
    world.eventually_order(&order.id, OrderStatus::Expired).await;
    // While the acquirer cannot be asked, nothing is said.
    world.script.set_down(true);
    assert!(world.pay(&intent, 3, &order.id, "pm_late").await.unwrap().is_unknown());
    world.script.set_down(false);
    // It has nothing now, and more than that is not said.
    let answer = world.pay(&intent, 4, &order.id, "pm_late").await.unwrap();
    assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::HoldExpiredNotCharged));
    assert!(answer.detail().contains("should its charge still arrive, it is refunded"), "{}", answer.detail());
    // It has landed: whoever asks next hears of it at once, whether or not the watch was there before.
    world.script.land(&intent.payment());
    let answer = world.pay(&intent, 5, &order.id, "pm_late").await.unwrap();
    assert_eq!(answer.refusal(), (Label::Final, RefusalReason::PaymentRefunded));
    world.eventually("it goes back", || async { world.script.refunds(&intent.payment()) == 1 }).await;
    assert_eq!(world.script.charge_calls(&intent.payment()), 1);
}

async fn a_closed_payment_is_watched_for_a_day(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    world.advance(HOLD);
    world.eventually_order(&order.id, OrderStatus::Expired).await;
    for _ in 0..23 {
        let asked = world.script.queries(&intent.payment());
        world.advance(Duration::from_secs(3600));
        world.eventually("it is asked for", || async { world.script.queries(&intent.payment()) > asked }).await;
    }
    world.script.land(&intent.payment());
    world.advance(Duration::from_secs(1800));
    world
        .eventually("the late charge is refunded", || async {
            world.payment(&intent).await.status() == PaymentStatus::Refunded
        })
        .await;
    assert_eq!((world.script.refunds(&intent.payment()), world.script.refund_calls()), (1, 1));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Expired, "never adopted, though seats are free");
}

async fn a_closed_payment_is_not_watched_for_ever(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    let given_up = intent.payment();
    let asked = world.script.queries(&given_up);
    world.advance(Duration::from_secs(26 * 3600));
    world.eventually("it is asked for one last time", || async { world.script.queries(&given_up) > asked }).await;
    let asked = world.script.queries(&given_up);
    // An undecided one is asked for again and again, in the very rounds that would ask for the other.
    let (order, open) = (world.ordered(1).await, Intent::new());
    world.pay(&open, 1, &order.id, "pm_pending").await.unwrap();
    for _ in 0..5 {
        let before = world.script.queries(&open.payment());
        world.advance(Duration::from_secs(24 * 3600));
        world
            .eventually("the open one is asked for", || async { world.script.queries(&open.payment()) > before })
            .await;
    }
    assert_eq!(world.script.queries(&given_up), asked);
}

async fn closing_what_has_no_payment_changes_nothing(world: World) {
    let (unseen, placed) = (Intent::new(), Intent::new());
    assert!(matches!(world.close(&unseen, 2).await.unwrap(), Closing::Closed(_)));
    assert_eq!(why(world.place(&unseen, 1, 1).await).0, Code::FailedPrecondition, "it fences, too");
    world.place(&placed, 1, 1).await.unwrap().order();
    assert!(matches!(world.close(&placed, 2).await.unwrap(), Closing::Settled(_)));
    // A closed payment that the acquirer turns out to have, undecided, is not unknown any more.
    let (order, intent) = (world.ordered(1).await, Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late").await.unwrap().is_unknown());
    assert!(matches!(world.close(&intent, 2).await.unwrap(), Closing::Closed(_)));
    world.script.land(&intent.payment());
    world.script.decide(&intent.payment(), Verdict::Pending);
    assert!(matches!(world.lookup(&intent, 3).await.unwrap(), Found::Pending(_)));
    world.script.decide(&intent.payment(), Verdict::Declined);
    assert_eq!(settled_refusal(world.lookup(&intent, 4).await.unwrap()), RefusalReason::PaymentDeclined);
}
