//! Payments that begin, and are settled, in one transaction with others, each with a fate of its own.

use super::{
    stage::{Ask, Stage, grant, new_operation, paying, reason},
    together::together,
};
use crate::{
    error::OrdersError,
    operation_id::OperationId,
    outcome::{Answer, Kind, Label, Outcome, RefusalReason},
};

/// Two are approved and one is declined.
pub async fn three_payments_are_made_together(stage: &Stage<'_>) {
    stage.put(4).await;
    let orders = [stage.placed(1).await, stage.placed(2).await, stage.placed(1).await];
    stage.open();
    let methods = ["pm_approved", "pm_approved", "pm_declined"];
    let asks: Vec<_> =
        orders.into_iter().zip(methods).map(|(order, method)| (new_operation(), 1, paying(order, method))).collect();
    let ends = all(stage, &asks).await;
    for end in &ends[..2] {
        assert!(matches!(end.outcome, Some(Outcome::Payment(_))), "{end:?}");
    }
    assert_eq!(reason(&ends[2]), (Label::Final, RefusalReason::PaymentDeclined));
    let mut statuses = stage.order_statuses().await;
    statuses.sort();
    assert_eq!(statuses, ["paid", "paid", "pending"]);
}

/// One is over, one was answered before, two want the same order, one wants none, and one is approved.
pub async fn odd_payments_are_made_together(stage: &Stage<'_>) {
    stage.put(4).await;
    let (first, paid, wanted) = (stage.placed(1).await, stage.placed(1).await, stage.placed(1).await);
    let [fenced, known, one, other, lost] = [(); 5].map(|()| new_operation());
    stage.pay(known, paid, "pm_approved").await;
    stage.shop().lookup(grant(fenced, 7), false, None).await.unwrap();
    stage.open();
    let asks = [
        (new_operation(), 1, paying(first, "pm_approved")),
        (fenced, 6, paying(wanted, "pm_approved")),
        (known, 9, paying(paid, "pm_approved")),
        (one, 1, paying(wanted, "pm_approved")),
        (other, 1, paying(wanted, "pm_approved")),
        (lost, 1, paying(new_operation().order(), "pm_approved")),
    ];
    let mut answers = together(stage, &asks).await;
    let stale = answers.remove(1);
    assert!(!matches!(stale, Some(Ok(_))), "{stale:?}");
    if stage.is_unbroken() {
        assert!(matches!(stale, Some(Err(OrdersError::StaleToken))), "{stale:?}");
    }
    let rest = [&asks[..1], &asks[2..]].concat();
    let ends = follow(stage, &rest, answers).await;
    assert!(matches!(ends[0].outcome, Some(Outcome::Payment(_))), "{:?}", ends[0]);
    assert!(ends[1].is_replay && matches!(ends[1].outcome, Some(Outcome::Payment(_))), "{:?}", ends[1]);
    let is_paid = |end: &Answer| matches!(end.outcome, Some(Outcome::Payment(_)));
    assert_eq!(ends[2..4].iter().filter(|end| is_paid(end)).count(), 1, "one order, one payment: {:?}", &ends[2..4]);
    assert_eq!(reason(&ends[4]), (Label::NoEffect, RefusalReason::NotFound));
    assert_eq!(stage.order_statuses().await, ["paid", "paid", "paid"]);
}

async fn all(stage: &Stage<'_>, asks: &[(OperationId, i64, Ask)]) -> Vec<Answer> {
    let answers = together(stage, asks).await;
    follow(stage, asks, answers).await
}

async fn follow(
    stage: &Stage<'_>,
    asks: &[(OperationId, i64, Ask)],
    answers: Vec<Option<Result<Answer, OrdersError>>>,
) -> Vec<Answer> {
    let mut ends = Vec::new();
    for ((operation, token, ask), answer) in asks.iter().zip(answers) {
        ends.push(stage.go_on(*token, *operation, Kind::Pay, ask, answer).await);
    }
    ends
}
