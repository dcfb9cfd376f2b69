//! Orders that are placed in one transaction, each with a fate of its own.

use futures::future::join_all;

use super::stage::{Ask, Stage, grant, new_operation, placing_another, reason, survive};
use crate::{
    error::OrdersError,
    operation_id::OperationId,
    outcome::{Kind, Label, Outcome, RefusalReason},
};

/// One was answered before, one fits, and one does not.
pub async fn three_orders_are_placed_together(stage: &Stage<'_>) {
    stage.put(3).await;
    let [known, fresh, large] = [new_operation(), new_operation(), new_operation()];
    let of = |operation, seats| stage.placing(operation, seats);
    stage.keyed(known, Kind::PlaceOrder, &of(known, 1)).await;
    stage.open();
    let asks = [(known, 2, of(known, 1)), (fresh, 1, of(fresh, 2)), (large, 1, of(large, 3))];
    let answers = together(stage, &asks).await;
    let mut ends = Vec::new();
    for ((operation, token, ask), answer) in asks.iter().zip(answers) {
        ends.push(stage.go_on(*token, *operation, Kind::PlaceOrder, ask, answer).await);
    }
    assert!(ends[0].is_replay && matches!(ends[0].outcome, Some(Outcome::Order(_))), "{:?}", ends[0]);
    assert!(matches!(ends[1].outcome, Some(Outcome::Order(_))), "{:?}", ends[1]);
    assert_eq!(reason(&ends[2]), (Label::NoEffect, RefusalReason::SoldOut));
    assert_eq!(stage.order_statuses().await, ["pending", "pending"]);
}

/// Two calls of one operation, one with a token that is over, and one whose operation stands for something else.
pub async fn odd_orders_are_placed_together(stage: &Stage<'_>) {
    stage.put(3).await;
    let [fenced, reused, twice] = [new_operation(), new_operation(), new_operation()];
    for operation in [fenced, reused] {
        stage.shop().lookup(grant(operation, 7), false, None).await.unwrap();
    }
    stage.keyed_from(8, reused, Kind::PlaceOrder, &stage.placing(reused, 1)).await;
    stage.open();
    let ask = stage.placing(twice, 1);
    let asks = [
        (fenced, 6, stage.placing(fenced, 1)),
        (reused, 9, placing_another(&stage.ticket_type, reused)),
        (twice, 1, ask.clone()),
        (twice, 2, ask),
    ];
    let mut answers = together(stage, &asks).await.into_iter();
    let mut next = || answers.next().expect("an answer to each");
    let (fenced_end, reused_end, first, repeat) = (next(), next(), next(), next());
    assert!(!matches!(fenced_end, Some(Ok(_))), "{fenced_end:?}");
    assert!(!matches!(reused_end, Some(Ok(_))), "{reused_end:?}");
    if stage.is_unbroken() {
        assert!(matches!(fenced_end, Some(Err(OrdersError::StaleToken))), "{fenced_end:?}");
        assert!(matches!(reused_end, Some(Err(OrdersError::OperationReused))), "{reused_end:?}");
    }
    let seen = [&first, &repeat].map(|answer| answer.as_ref().and_then(|it| it.as_ref().ok()?.outcome.clone()));
    if let [Some(first), Some(repeat)] = seen {
        assert_eq!(first, repeat, "one operation, one answer");
    }
    let answer = stage.go_on(2, twice, Kind::PlaceOrder, &asks[3].2, repeat).await;
    assert!(matches!(answer.outcome, Some(Outcome::Order(_))), "{answer:?}");
    assert_eq!(stage.order_statuses().await, ["pending", "pending"]);
}

/// Asks for all of these at once, on one shop: they wait for each other there.
pub async fn together(
    stage: &Stage<'_>,
    asks: &[(OperationId, i64, Ask)],
) -> Vec<Option<Result<crate::outcome::Answer, OrdersError>>> {
    let shop = stage.shop();
    join_all(asks.iter().map(|(operation, token, ask)| survive(ask(shop.clone(), grant(*operation, *token))))).await
}
