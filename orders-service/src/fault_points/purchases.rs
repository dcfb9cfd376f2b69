//! What a buyer asks for, and gets within the call.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::stage::{Ask, HOLD, Round, Stage, call, grant, new_operation, paying, reason, survive};
use crate::{
    check_in::CheckInCall,
    confirm_order::OrderCall,
    operation_id::OrderId,
    outcome::{Answer, Kind, Label, Outcome, RefusalReason},
};

pub async fn an_order_is_placed(stage: &Stage<'_>) {
    stage.put(2).await;
    stage.open();
    stage.placed(2).await;
    assert_eq!(stage.order_statuses().await, ["pending"]);
}

pub async fn an_order_finds_nothing_left(stage: &Stage<'_>) {
    stage.put(2).await;
    stage.placed(2).await;
    stage.open();
    let operation = new_operation();
    let refused = stage.keyed(operation, Kind::PlaceOrder, &stage.placing(operation, 1)).await;
    assert_eq!(reason(&refused), (Label::NoEffect, RefusalReason::SoldOut));
}

pub async fn an_order_takes_seats_whose_hold_is_over(stage: &Stage<'_>) {
    stage.put(2).await;
    stage.placed(2).await;
    stage.bench.advance(HOLD);
    stage.open();
    stage.placed(1).await;
    let mut statuses = stage.order_statuses().await;
    statuses.sort();
    assert_eq!(statuses, ["expired", "pending"]);
}

pub async fn a_payment_is_approved(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    stage.open();
    let payment = stage.paid(order).await;
    assert_eq!(stage.payment_status(payment).await.as_deref(), Some("approved"));
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn a_payment_is_declined(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    stage.open();
    let answer = stage.pay(new_operation(), order, "pm_declined").await;
    assert_eq!(reason(&answer), (Label::Final, RefusalReason::PaymentDeclined));
    assert_eq!(stage.order_statuses().await, ["pending"], "the seats stay held");
}

pub async fn a_payment_is_refused_while_another_is_open(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, open) = (stage.placed(1).await, new_operation());
    paying(order, "pm_pending")(stage.shop(), grant(open, 1)).await.unwrap();
    stage.open();
    let refused = stage.pay(new_operation(), order, "pm_approved").await;
    assert_eq!(reason(&refused), (Label::NoEffect, RefusalReason::PaymentInProgress));
    stage.script.decide(&open.payment().to_string(), crate::payment::Verdict::Declined);
}

pub async fn a_payment_loses_its_answer(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    stage.open();
    let answer = stage.pay(new_operation(), order, "pm_charge_then_drop").await;
    assert!(matches!(answer.outcome, Some(Outcome::Payment(_))), "{answer:?}");
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

/// Two calls with one token: one acts, the other waits for its answer.
pub async fn a_repeat_waits_for_the_answer(stage: &Stage<'_>) {
    stage.put(2).await;
    let (order, operation) = (stage.placed(1).await, new_operation());
    stage.open();
    let ask = paying(order, "pm_gated");
    let is_charging = || stage.script.charge_calls(&operation.payment().to_string()) > 0;
    let (first, is_over) = (survive(ask(stage.shop(), grant(operation, 1))), AtomicBool::new(false));
    let repeat = async {
        while !is_charging() {
            tokio::task::yield_now().await;
        }
        let repeat = survive(ask(stage.shop(), grant(operation, 1))).await;
        is_over.store(true, Ordering::SeqCst);
        repeat
    };
    let opener = async {
        // Only once the repeat has looked in vain; one that breaks at its first look never pauses.
        let has_paused = || stage.bench.crossed().iter().any(|it| it.point == "wait for answer: pause");
        while !has_paused() && !is_over.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        stage.script.open_gate();
    };
    let (first, repeat, ()) = tokio::join!(first, repeat, opener);
    let first = first.expect("it is the repeat that breaks").unwrap();
    if let Some(Ok(repeat)) = repeat {
        assert_eq!((repeat.label, &repeat.outcome), (first.label, &first.outcome));
    }
    let answer = stage.keyed_from(1, operation, Kind::Pay, &ask).await;
    assert_eq!(answer.outcome, first.outcome);
    assert_eq!(stage.script.charge_calls(&operation.payment().to_string()), 1);
}

pub async fn an_order_is_confirmed(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    stage.open();
    confirm(stage, order).await;
    assert_eq!(stage.order_statuses().await, ["paid"]);
}

pub async fn an_order_without_a_payment_is_cancelled(stage: &Stage<'_>) {
    stage.put(2).await;
    let (held, sold) = (stage.placed(1).await, stage.placed(1).await);
    confirm(stage, sold).await;
    stage.open();
    cancel(stage, held).await;
    cancel(stage, sold).await;
    assert_eq!(stage.order_statuses().await, ["cancelled", "cancelled"]);
}

pub async fn a_paid_order_is_cancelled_and_refunded(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    let payment = stage.paid(order).await;
    stage.open();
    cancel(stage, order).await;
    stage.until_payment_is(payment, "refunded", &[Round::Refunds]).await;
    assert_eq!(stage.order_statuses().await, ["refunded"]);
}

pub async fn a_ticket_is_checked_in(stage: &Stage<'_>) {
    stage.put(2).await;
    let order = stage.placed(1).await;
    confirm(stage, order).await;
    stage.open();
    for is_already_used in [false, true] {
        let check_in: Ask = Arc::new(move |shop, grant| {
            let ask = CheckInCall { call: call(Kind::CheckInTicket, grant), ticket: Some(order.ticket(0)) };
            Box::pin(async move { shop.check_in(ask).await })
        });
        let answer = stage.keyed(new_operation(), Kind::CheckInTicket, &check_in).await;
        match answer.outcome {
            Some(Outcome::CheckIn(check_in)) => assert_eq!(check_in.is_already_used, is_already_used),
            other => panic!("no check-in: {other:?}"),
        }
    }
}

pub async fn confirm(stage: &Stage<'_>, order: OrderId) -> Answer {
    let ask: Ask = Arc::new(move |shop, grant| {
        let ask = OrderCall { call: call(Kind::ConfirmOrder, grant), order: Some(order) };
        Box::pin(async move { shop.confirm_order(ask).await })
    });
    let answer = stage.keyed(new_operation(), Kind::ConfirmOrder, &ask).await;
    assert_eq!(answer.label, Label::Final, "{answer:?}");
    answer
}

async fn cancel(stage: &Stage<'_>, order: OrderId) -> Answer {
    let ask: Ask = Arc::new(move |shop, grant| {
        let ask = OrderCall { call: call(Kind::CancelOrder, grant), order: Some(order) };
        Box::pin(async move { shop.cancel_order(ask).await })
    });
    let answer = stage.keyed(new_operation(), Kind::CancelOrder, &ask).await;
    assert_eq!(answer.label, Label::Final, "{answer:?}");
    answer
}
