//! When the first attempt did not finish: fence, then ask, then act.
//!
//! The first attempt is a `Holder`: it reserves as a gateway does, goes as far as the scenario says, and is then as good as dead.

use std::time::Duration;

use e2e::{Holder, World, eventually, on_both_stores};
use idem_proto::{
    idem::v1::{State, complete_response},
    orders::v1::Label,
};
use serde_json::json;
use tonic::Code;

async fn until_placed(world: &World, key: &str, quantity: u32) -> e2e::Reply {
    eventually("the retry is answered", || async {
        let reply = world.post("/v1/orders", key, World::order_body(quantity)).await;
        assert!(reply.status == 201 || reply.status == 409, "{}", reply.status);
        (reply.status == 201).then_some(reply)
    })
    .await
}

on_both_stores! {
    async fn while_the_lease_lives_a_retry_is_told_to_wait(world: World) {
        Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        let busy = world.post("/v1/orders", "k1", World::order_body(1)).await;
        let busy = busy.expect_problem(409, "conflict", Some("request_in_progress"), true);
        assert_eq!(busy.header("retry-after"), Some("1"));
        assert_eq!(busy.header("link"), Some("</docs/idempotency>; rel=\"describedby\""));
        // Another body is judged before "in progress".
        let other = world.post("/v1/orders", "k1", World::order_body(2)).await;
        let other = other.expect_problem(422, "idempotency_key_reuse", None, false);
        assert_eq!(other.header("retry-after"), None, "waiting does not help");
        let state = world.key_state("k1").await.expect(200).json();
        assert_eq!((&state["state"], &state["statusCode"]), (&json!("in_progress"), &json!(null)));
        assert!(state["leaseExpiresAt"].is_string() && state["expiresAt"].is_null());
    }

    async fn a_holder_that_died_before_acting_is_replaced(world: World) {
        Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(3)).await;
        world.let_leases_run_out();
        let placed = until_placed(&world, "k1", 3).await;
        assert!(!placed.is_replay(), "nothing had happened");
        assert_eq!(world.ticket_type("general").await["held"], 3);
        assert!(until_placed(&world, "k1", 3).await.expect_same_as(&placed).is_replay());
    }

    async fn a_holder_that_died_after_the_hold_is_found_out(world: World) {
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(3)).await;
        let answer = dead.place(3).await.unwrap();
        assert_eq!(answer.label(), Label::Final);
        world.let_leases_run_out();
        let placed = until_placed(&world, "k1", 3).await;
        assert!(placed.is_replay(), "it comes from the earlier execution");
        let id = placed.text("id");
        assert_eq!(placed.header("location"), Some(format!("/v1/orders/{id}").as_str()));
        assert!(placed.header("idempotency-key-expires").is_some());
        assert_eq!(world.ticket_type("general").await["held"], 3);
    }

    async fn a_recovered_answer_is_the_one_of_then_not_of_now(world: World) {
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        let Some(idem_proto::orders::v1::result::Kind::Order(order)) = dead.place(1).await.unwrap().result.unwrap().kind else {
            panic!()
        };
        world.post_bare(&format!("/v1/orders/{}/cancel", order.id)).await.expect(200);
        world.let_leases_run_out();
        let placed = until_placed(&world, "k1", 1).await;
        assert_eq!((placed.text("id"), placed.text("status")), (order.id.clone(), "pending".to_owned()));
        assert_eq!(world.order_status(&order.id).await, "cancelled");
    }

    async fn a_holder_that_died_after_the_charge_is_found_out(world: World) {
        let order = world.place("o1", 1).await;
        let body = json!({"orderId": order, "paymentMethod": "pm_approved"});
        let mut dead = Holder::reserve(&world, "k1", "/v1/payments", &body).await;
        assert_eq!(dead.pay(&order, "pm_approved").await.unwrap().label(), Label::Final);
        world.let_leases_run_out();
        let paid = eventually("the retry is answered", || async {
            let reply = world.pay("k1", &order, "pm_approved").await;
            (reply.status == 201).then_some(reply)
        }).await;
        assert!(paid.is_replay());
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
    }

    async fn a_holder_that_died_before_charging_is_replaced_and_charges_once(world: World) {
        let order = world.place("o1", 1).await;
        let body = json!({"orderId": order, "paymentMethod": "pm_approved"});
        Holder::reserve(&world, "k1", "/v1/payments", &body).await;
        world.let_leases_run_out();
        let paid = eventually("the retry is answered", || async {
            let reply = world.pay("k1", &order, "pm_approved").await;
            assert!(reply.status == 201 || reply.status == 409, "{}", reply.status);
            (reply.status == 201).then_some(reply)
        }).await;
        assert!(!paid.is_replay(), "nothing had happened");
        assert!(world.pay("k1", &order, "pm_approved").await.expect_same_as(&paid).is_replay());
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        assert_eq!(world.acquirer_totals().await["charges"], 1);
    }

    async fn a_buyer_is_never_kept_out_by_the_seats_of_his_own_first_try(world: World) {
        world.put_ticket_type("general", 2).await.expect(200);
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(2)).await;
        assert_eq!(dead.place(2).await.unwrap().label(), Label::Final);
        world.post("/v1/orders", "k2", World::order_body(1)).await.expect_problem(409, "sold_out", None, true);
        world.let_leases_run_out();
        let placed = until_placed(&world, "k1", 2).await;
        assert_eq!(world.ticket_type("general").await["held"], 2, "the same two seats");
        // Nor by another's, once they are free: the same key executes again.
        world.post_bare(&format!("/v1/orders/{}/cancel", placed.text("id"))).await.expect(200);
        world.post("/v1/orders", "k2", World::order_body(1)).await.expect(201);
        assert_eq!(world.ticket_type("general").await["held"], 1);
    }

    async fn one_of_many_retries_takes_over(world: World) {
        Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(2)).await;
        world.let_leases_run_out();
        let all = (0..50).map(|_| world.post("/v1/orders", "k1", World::order_body(2)));
        for reply in futures::future::join_all(all).await {
            assert!(reply.status == 201 || reply.status == 409, "{}", reply.status);
            if reply.status == 409 {
                reply.expect_problem(409, "conflict", Some("request_in_progress"), true);
            }
        }
        until_placed(&world, "k1", 2).await;
        assert_eq!(world.ticket_type("general").await["held"], 2);
    }

    async fn a_late_holder_changes_nothing(world: World) {
        let mut late = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(2)).await;
        world.let_leases_run_out();
        let placed = until_placed(&world, "k1", 2).await;
        assert_eq!(late.place(2).await.unwrap_err(), Code::FailedPrecondition);
        let Some(complete_response::Outcome::Superseded(superseded)) = late.complete(201, "late").await.outcome else {
            panic!("a late Complete was accepted")
        };
        assert_eq!(superseded.state(), State::Completed);
        assert!(!late.release().await);
        assert!(until_placed(&world, "k1", 2).await.expect_same_as(&placed).is_replay());
        assert_eq!(world.ticket_type("general").await["held"], 2);
    }

    async fn a_holder_that_was_only_slow_may_still_finish(world: World) {
        // Nobody reclaims here: the reconciler looks every few seconds, and the holder is faster.
        let mut slow = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        slow.place(1).await.unwrap();
        world.let_leases_run_out();
        let answer = slow.complete(201, "mine").await.outcome;
        if let Some(complete_response::Outcome::Completed(_)) = answer {
            let replay = world.post("/v1/orders", "k1", World::order_body(1)).await;
            assert_eq!(&replay.expect(201).body[..], b"mine");
        } else {
            // The reconciler was faster after all: then its answer stands.
            assert!(until_placed(&world, "k1", 1).await.is_replay());
        }
    }

    async fn an_unfinished_key_never_expires(world: World) {
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        dead.place(1).await.unwrap();
        world.advance(Duration::from_secs(60 * 24 * 3600));
        let placed = until_placed(&world, "k1", 1).await;
        assert!(placed.is_replay(), "sixty days later the same operation");
    }
}
