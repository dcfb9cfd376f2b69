//! What becomes of a key: executed, replayed, released, abandoned, reclaimed.

use e2e::{Holder, Reply};
use http::Method;
use serde_json::Value;

use crate::stage::Stage;

fn is_created(reply: &Reply) -> bool {
    reply.status == 201
}

/// Sends until it is created, and checks that it stays so.
async fn created(stage: &Stage<'_>, path: &str, key: &str, body: Value) -> Reply {
    let answer = stage.until_answered(path, key, &body, is_created).await;
    stage.check_key(path, key, &body, &answer).await;
    answer
}

async fn order_is_created(stage: &Stage<'_>) {
    stage.expect_seats(1, 0);
    created(stage, "/v1/orders", &stage.key("order"), stage.order_body(1)).await;
}

pub async fn an_order_is_placed(stage: &Stage<'_>) {
    stage.open();
    order_is_created(stage).await;
}

pub async fn an_order_is_replayed(stage: &Stage<'_>) {
    let first = stage.world.post("/v1/orders", &stage.key("order"), stage.order_body(1)).await.expect(201);
    stage.open();
    stage.expect_seats(1, 0);
    let again = created(stage, "/v1/orders", &stage.key("order"), stage.order_body(1)).await;
    assert!(again.expect_same_as(&first).is_replay());
}

pub async fn an_order_is_refused(stage: &Stage<'_>) {
    let taken = stage.placed(3).await;
    stage.open();
    stage.expect_seats(3, 0);
    let (key, body) = (stage.key("order"), stage.order_body(1));
    let is_sold_out = |reply: &Reply| reply.status == 409 && reply.json()["error"] == "sold_out";
    let refused = stage.until_answered("/v1/orders", &key, &body, is_sold_out).await;
    assert!(!refused.is_replay(), "a refusal without effect is not kept");
    // A release that has failed is said again while nobody waits.
    stage.world.until_key_is(&key, "released").await;
    stage.check_key("/v1/orders", &key, &body, &refused).await;
    assert_eq!(stage.world.order_status(&taken).await, "pending");
}

pub async fn a_payment_is_approved(stage: &Stage<'_>) {
    let order = stage.placed(1).await;
    stage.open();
    payment_is_created(stage, &order, "pm_approved").await;
}

async fn payment_is_created(stage: &Stage<'_>, order: &str, method: &str) {
    stage.expect_seats(0, 1);
    let paid = created(stage, "/v1/payments", &stage.key("payment"), Stage::pay_body(order, method)).await;
    assert_eq!(stage.world.payment_status(&paid.text("id")).await, "approved");
    assert_eq!(stage.world.order_status(order).await, "paid");
}

pub async fn a_pending_payment_is_settled(stage: &Stage<'_>) {
    let order = stage.placed(1).await;
    stage.open();
    let (key, body) = (stage.key("payment"), Stage::pay_body(&order, "pm_pending"));
    // The acquirer has it when the answer says so, or when a look-up has found that it is pending.
    let is_begun = |reply: &Reply| reply.status == 202 || reply.json()["code"] == "outcome_pending";
    stage.until_answered("/v1/payments", &key, &body, is_begun).await;
    stage.world.settle(&stage.payment_of(&key).await, "approved").await;
    payment_is_created(stage, &order, "pm_pending").await;
}

pub async fn an_answer_is_stored_at_the_second_try(stage: &Stage<'_>) {
    stage.open();
    order_is_created(stage).await;
}

pub async fn an_answer_is_lost_and_asked_for(stage: &Stage<'_>) {
    let order = stage.placed(1).await;
    stage.open();
    payment_is_created(stage, &order, "pm_approved").await;
}

pub async fn the_store_hiccups(stage: &Stage<'_>) {
    stage.open();
    order_is_created(stage).await;
}

pub async fn a_dead_holder_had_done_nothing(stage: &Stage<'_>) {
    let (key, body) = (stage.key("order"), stage.order_body(1));
    Holder::reserve(stage.world, &key, "/v1/orders", &body).await;
    stage.open();
    stage.world.let_leases_run_out();
    order_is_created(stage).await;
}

pub async fn a_dead_holder_had_placed_the_order(stage: &Stage<'_>) {
    let (key, body) = (stage.key("order"), stage.order_body(1));
    let mut dead = Holder::reserve(stage.world, &key, "/v1/orders", &body).await;
    dead.place_of(&stage.ticket_type, 1).await.unwrap();
    stage.open();
    stage.world.let_leases_run_out();
    order_is_created(stage).await;
}

pub async fn a_retry_waits_for_the_holder(stage: &Stage<'_>) {
    let (key, body) = (stage.key("order"), stage.order_body(1));
    let mut holder = Holder::reserve(stage.world, &key, "/v1/orders", &body).await;
    let answer = holder.place_of(&stage.ticket_type, 1).await.unwrap();
    let Some(idem_proto::orders::v1::result::Kind::Order(order)) = answer.result.unwrap().kind else { panic!() };
    stage.open();
    let patient = || stage.world.ask(Method::POST, "/v1/orders").key(&key).header("prefer", "wait=5").json(&body);
    let finish = async {
        // Not before somebody waits, or nobody waits any more.
        let waits = || stage.crossed().iter().any(|it| it.point == "idem wait: pause");
        let looked = async {
            while !waits() {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), looked).await;
        // As often as it takes, as a holder does.
        while holder.try_complete(201, &format!("{{\"id\":\"{}\"}}", order.id)).await.is_err() {}
    };
    let (first, ()) = tokio::join!(patient().try_send(), finish);
    let answer = match first {
        Ok(reply) if reply.status == 201 => reply,
        _ => stage.until(patient, is_created).await,
    };
    assert!(answer.is_replay());
    stage.expect_seats(1, 0);
    stage.check_key("/v1/orders", &key, &body, &answer).await;
}
