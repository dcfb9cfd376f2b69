//! Payments that are decided after their call: by webhook, by the watch, by a look-up, or too late.

use super::purchases::confirm;
use super::stage::{HOLD, PRICE, Round, Stage, grant, new_operation, paying, reason, survive};
use crate::{
    operation_id::{OperationId, OrderId},
    outcome::{Kind, Label, Outcome, RefusalReason},
    payment::Verdict,
    resolve::Closing,
};

/// Pays with what the acquirer leaves pending, until it has it.
async fn left_pending(stage: &Stage<'_>, operation: OperationId, order: OrderId) -> i64 {
    for token in 1..8 {
        survive(paying(order, "pm_pending")(stage.shop(), grant(operation, token))).await;
        if stage.payment_status(operation.payment()).await.as_deref() == Some("pending") {
            return token;
        }
    }
    panic!("a payment that the acquirer never got");
}

pub async fn a_pending_payment_is_approved_by_webhook(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    stage.open();
    let token = left_pending(stage, operation, order).await;
    stage.script.decide(&operation.payment().to_string(), Verdict::Approved);
    stage.deliver(&event("approved", operation), "payment.approved", operation.payment(), PRICE).await;
    assert_eq!(stage.order_statuses().await, ["paid"]);
    let answer = stage.keyed_from(token, operation, Kind::Pay, &paying(order, "pm_pending")).await;
    assert!(matches!(answer.outcome, Some(Outcome::Payment(_))), "{answer:?}");
}

pub async fn a_webhook_comes_before_its_payment(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    stage.open();
    stage.deliver(&event("early", operation), "payment.declined", operation.payment(), PRICE).await;
    left_pending(stage, operation, order).await;
    stage.script.decide(&operation.payment().to_string(), Verdict::Declined);
    stage.until_payment_is(operation.payment(), "declined", &[Round::Watch, Round::Events]).await;
}

pub async fn a_webhook_of_a_later_kind_is_kept(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    let payment = stage.paid(order).await;
    stage.open();
    let id = format!("evt_{payment}");
    stage.deliver(&id, "payment.disputed", payment, PRICE).await;
    // And one that speaks of other money: seen by somebody, applied to nothing.
    stage.deliver(&format!("{id}_other"), "payment.declined", payment, PRICE + 1).await;
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn a_pending_payment_is_found_by_the_watch(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    left_pending(stage, operation, order).await;
    stage.open();
    stage.rounds_later(&[Round::Watch]).await;
    stage.script.decide(&operation.payment().to_string(), Verdict::Approved);
    stage.until_payment_is(operation.payment(), "approved", &[Round::Watch]).await;
}

pub async fn a_pending_payment_is_declined_late(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    let token = left_pending(stage, operation, order).await;
    stage.open();
    // The reconciler looks while it is not decided.
    stage.reconcile(grant(operation, token + 1)).await;
    stage.script.decide(&operation.payment().to_string(), Verdict::Declined);
    let answer = stage.keyed_from(token + 2, operation, Kind::Pay, &paying(order, "pm_pending")).await;
    assert_eq!(reason(&answer), (Label::Final, RefusalReason::PaymentDeclined));
}

pub async fn a_payment_is_given_up_and_its_charge_comes_back(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    let payment = operation.payment();
    // Sent, and on its way for as long as the road is.
    let lost = paying(order, "pm_late")(stage.shop(), grant(operation, 1)).await.unwrap();
    assert_eq!(lost.label, Label::Unknown);
    stage.open();
    stage.reconcile(grant(operation, 2)).await;
    assert_eq!(stage.close(operation, 3).await, Closing::Closed);
    // The order is free again, and paid otherwise.
    confirm(stage, order).await;
    stage.script.land(&payment.to_string());
    stage.until_payment_is(payment, "refunded", &[Round::Watch, Round::Refunds]).await;
    let answer = stage.keyed_from(100, operation, Kind::Pay, &paying(order, "pm_late")).await;
    assert_eq!(reason(&answer), (Label::Final, RefusalReason::PaymentRefunded));
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn a_payment_that_was_given_up_is_opened_again(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    stage.open();
    stage.script.set_down(true);
    survive(paying(order, "pm_approved")(stage.shop(), grant(operation, 1))).await;
    stage.script.set_down(false);
    assert_eq!(stage.close(operation, 2).await, Closing::Closed);
    let answer = stage.keyed_from(100, operation, Kind::Pay, &paying(order, "pm_approved")).await;
    assert!(matches!(answer.outcome, Some(Outcome::Payment(_))), "{answer:?}");
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn a_late_approval_takes_the_seats_again(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(2).await, new_operation());
    left_pending(stage, operation, order).await;
    lapse(stage).await;
    stage.open();
    stage.script.decide(&operation.payment().to_string(), Verdict::Approved);
    stage.deliver(&event("late", operation), "payment.approved", operation.payment(), PRICE * 2).await;
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn a_late_approval_finds_the_seats_taken(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(2).await, new_operation());
    left_pending(stage, operation, order).await;
    lapse(stage).await;
    stage.placed(1).await;
    stage.open();
    stage.script.decide(&operation.payment().to_string(), Verdict::Approved);
    stage.deliver(&event("late", operation), "payment.approved", operation.payment(), PRICE * 2).await;
    stage.until_payment_is(operation.payment(), "refunded", &[Round::Refunds]).await;
    let answer = stage.keyed_from(100, operation, Kind::Pay, &paying(order, "pm_pending")).await;
    assert_eq!(reason(&answer), (Label::Final, RefusalReason::HoldExpiredRefunded));
}

/// Lets the hold of the one order pass, with the time that an undecided payment adds.
async fn lapse(stage: &Stage<'_>) {
    stage.bench.advance(HOLD * 2);
    for _ in 0..8 {
        stage.rounds_later(&[Round::Sweep]).await;
        if stage.order_statuses().await == ["expired"] {
            return;
        }
    }
    panic!("a hold that never lapses");
}

fn event(word: &str, operation: OperationId) -> String {
    format!("evt_{word}_{operation}")
}
