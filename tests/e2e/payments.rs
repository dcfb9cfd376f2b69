//! Every way in which a payment can go, and the answer that the contract says.

use std::time::Duration;

use e2e::{World, eventually, on_both_stores};
use http::Method;
use idem_local::Settings;
use serde_json::json;

/// Timeouts short enough to meet for real.
fn short(settings: &mut Settings) {
    settings.acquirer_timeout = Duration::from_secs(1);
    settings.upstream_timeout = Duration::from_secs(2);
    settings.lease = Duration::from_secs(4);
}

/// Waits for the final answer to a key by asking as a client would.
async fn until_answered(world: &World, key: &str, order: &str, method: &str) -> e2e::Reply {
    eventually("the key has its final answer", || async {
        let reply = world.pay(key, order, method).await;
        let is_final = ![409, 503].contains(&reply.status.as_u16()) || reply.json()["retryable"] == false;
        is_final.then_some(reply)
    })
    .await
}

on_both_stores! {
    #[settings(short)]
    async fn charged_without_an_answer_is_found_by_asking(world: World) {
        for (n, method) in ["pm_charge_then_hang", "pm_charge_then_drop"].into_iter().enumerate() {
            let order = world.place(&format!("o{n}"), 1).await;
            let key = format!("p{n}");
            let paid = world.pay(&key, &order, method).await.expect(201);
            assert!(!paid.is_replay(), "the same request found out");
            assert_eq!(world.order_status(&order).await, "paid");
            assert!(world.pay(&key, &order, method).await.expect_same_as(&paid).is_replay());
            assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        }
        assert_eq!(world.acquirer_totals().await["captured"], 2000);
    }

    #[settings(short)]
    async fn a_slow_approval_is_waited_for(world: World) {
        let order = world.place("o1", 1).await;
        let paid = world.pay("p1", &order, "pm_slow_600").await.expect(201);
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        // One that outlasts every timeout is undecided first, and then found.
        let order = world.place("o2", 1).await;
        let first = world.pay("p2", &order, "pm_slow_2500").await;
        assert!([202, 409, 503].contains(&first.status.as_u16()), "{}", first.status);
        let paid = until_answered(&world, "p2", &order, "pm_slow_2500").await.expect(201);
        assert!(paid.is_replay());
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
    }

    async fn a_pending_payment_is_final_once_its_webhook_has_come(world: World) {
        let order = world.place("o1", 2).await;
        let pending = world.pay("p1", &order, "pm_pending").await.expect(202);
        assert_eq!(pending.header("retry-after"), Some("5"));
        assert_eq!(pending.text("status"), "pending");
        assert_eq!(pending.json()["amount"], 2000);
        let payment = pending.text("id");
        assert_eq!(world.payment_status(&payment).await, "pending");
        let state = world.key_state("p1").await.expect(200).json();
        assert_eq!(state["state"], "in_doubt");
        let again = world.pay("p1", &order, "pm_pending").await;
        let again = again.expect_problem(409, "conflict", Some("outcome_pending"), true);
        assert_eq!(again.header("retry-after"), Some("5"));
        let event = world.settle(&payment, "approved").await;
        let paid = until_answered(&world, "p1", &order, "pm_pending").await.expect(201);
        assert!(paid.is_replay());
        assert_eq!(paid.json(), json!({"id": payment, "orderId": order, "status": "approved", "amount": 2000, "currency": "EUR"}));
        // The same event again changes nothing.
        for _ in 0..3 {
            world.sandbox(Method::POST, &format!("/sandbox/webhooks/{event}/redeliver"), None).await;
        }
        assert!(world.pay("p1", &order, "pm_pending").await.expect_same_as(&paid).is_replay());
        assert_eq!(world.ticket_type("general").await["sold"], 2);
        assert_eq!(world.acquirer_payment(&payment).await["charges"], 1);
    }

    async fn a_pending_payment_may_be_declined_and_the_hold_stays(world: World) {
        let order = world.place("o1", 1).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        world.settle(&payment, "declined").await;
        let declined = until_answered(&world, "p1", &order, "pm_pending").await;
        let declined = declined.expect_problem(402, "payment_declined", None, false);
        assert!(declined.is_replay());
        assert_eq!(world.payment_status(&payment).await, "declined");
        assert_eq!(world.order_status(&order).await, "pending");
        world.pay("p2", &order, "pm_approved").await.expect(201);
    }

    async fn a_lost_webhook_is_made_good_by_asking(world: World) {
        world.lose_webhooks().await;
        let order = world.place("o1", 1).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        world.settle(&payment, "approved").await;
        let paid = world.pay("p1", &order, "pm_pending").await;
        // Another recovery may be at it just now.
        let paid = if paid.status == 409 { until_answered(&world, "p1", &order, "pm_pending").await } else { paid };
        assert!(paid.expect(201).is_replay());
        assert_eq!(world.order_status(&order).await, "paid");
    }

    async fn while_a_payment_is_undecided_nothing_else_may_settle_the_order(world: World) {
        let order = world.place("o1", 1).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        let other = world.pay("p2", &order, "pm_approved").await;
        let other = other.expect_problem(409, "conflict", Some("payment_in_progress"), true);
        assert_eq!(other.header("retry-after"), Some("5"));
        let confirm = world.post_bare(&format!("/v1/orders/{order}/confirm")).await;
        confirm.expect_problem(409, "conflict", Some("payment_in_progress"), true);
        let cancel = world.post_bare(&format!("/v1/orders/{order}/cancel")).await;
        let cancel = cancel.expect_problem(409, "conflict", Some("not_cancellable"), false);
        assert!(cancel.header("retry-after").is_none(), "never on a transition conflict");
        world.settle(&payment, "declined").await;
        until_answered(&world, "p2", &order, "pm_approved").await.expect(201);
        assert_eq!(world.acquirer_totals().await["charges"], 1);
    }

    #[settings(short)]
    async fn an_error_at_the_acquirer_is_in_doubt_until_it_is_given_up(world: World) {
        for (n, method) in ["pm_error", "pm_drop"].into_iter().enumerate() {
            let order = world.place(&format!("o{n}"), 1).await;
            let key = format!("p{n}");
            let failed = world.pay(&key, &order, method).await;
            let failed = failed.expect_problem(503, "upstream_unavailable", Some("in_doubt"), true);
            assert!(failed.header("retry-after").is_some());
            // The reconciler, who has no body, gives the payment up and frees key and order.
            world.until_key_is(&key, "released").await;
            let paid = world.pay(&format!("q{n}"), &order, "pm_approved").await.expect(201);
            assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        }
        assert_eq!(world.acquirer_totals().await, json!({"charges": 2, "captured": 2000, "refunded": 0}));
    }

    #[settings(short)]
    async fn a_pending_payment_whose_create_hung_is_resumed(world: World) {
        let order = world.place("o1", 1).await;
        let first = world.pay("p1", &order, "pm_pending_charge_then_hang").await.expect(202);
        let payment = first.text("id");
        world.settle(&payment, "approved").await;
        let paid = until_answered(&world, "p1", &order, "pm_pending_charge_then_hang").await.expect(201);
        assert_eq!(paid.text("id"), payment);
        assert_eq!(world.acquirer_payment(&payment).await["charges"], 1);
    }

    #[settings(short)]
    async fn an_acquirer_that_is_away_loses_nothing(world: World) {
        let order = world.place("o1", 1).await;
        world.sandbox(Method::POST, "/sandbox/outage", Some(json!({"seconds": 600}))).await;
        for _ in 0..3 {
            let reply = world.pay("p1", &order, "pm_approved").await;
            assert!([409, 503].contains(&reply.status.as_u16()), "{}", reply.status);
            assert_eq!(reply.json()["retryable"], true);
        }
        world.sandbox(Method::POST, "/sandbox/outage", Some(json!({"seconds": 0}))).await;
        let paid = until_answered(&world, "p1", &order, "pm_approved").await.expect(201);
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        assert_eq!(world.order_status(&order).await, "paid");
    }
}
