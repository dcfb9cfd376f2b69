//! Keys whose client never returns are settled all the same, and by nobody twice.

use e2e::{Holder, World, eventually, on_both_stores};
use idem_proto::orders::v1::Label;
use serde_json::json;

on_both_stores! {
    async fn a_key_that_was_only_reserved_is_released(world: World) {
        Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        world.let_leases_run_out();
        world.until_key_is("k1", "released").await;
        assert_eq!(world.ticket_type("general").await["held"], 0, "it never executes");
        assert!(!world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201).is_replay());
    }

    async fn a_key_whose_order_was_placed_is_completed_with_its_answer(world: World) {
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(2)).await;
        dead.place(2).await.unwrap();
        world.let_leases_run_out();
        let state = world.until_key_is("k1", "completed").await;
        assert_eq!(state["statusCode"], 201);
        let replay = world.post("/v1/orders", "k1", World::order_body(2)).await.expect(201);
        assert!(replay.is_replay());
        assert!(replay.header("location").is_some());
        assert_eq!(world.ticket_type("general").await["held"], 2);
    }

    async fn a_key_whose_payment_was_declined_is_completed_with_402(world: World) {
        let order = world.place("o1", 1).await;
        let body = json!({"orderId": order, "paymentMethod": "pm_declined"});
        let mut dead = Holder::reserve(&world, "k1", "/v1/payments", &body).await;
        dead.pay(&order, "pm_declined").await.unwrap();
        world.let_leases_run_out();
        assert_eq!(world.until_key_is("k1", "completed").await["statusCode"], 402);
        let replay = world.pay("k1", &order, "pm_declined").await;
        assert!(replay.expect_problem(402, "payment_declined", None, false).is_replay());
    }

    async fn a_refusal_that_was_never_answered_is_released(world: World) {
        for key in ["o1", "o2"] {
            world.place(key, 50).await;
        }
        let mut dead = Holder::reserve(&world, "k1", "/v1/orders", &World::order_body(1)).await;
        // Refused without effect, and the holder dies before it can release.
        assert_eq!(dead.place(1).await.unwrap().label(), Label::NoEffect);
        world.let_leases_run_out();
        world.until_key_is("k1", "released").await;
        world.post("/v1/orders", "k1", World::order_body(1)).await.expect_problem(409, "sold_out", None, true);
    }

    #[settings(|s| s.lease = std::time::Duration::from_secs(26))]
    async fn a_pending_payment_without_a_client_is_settled_by_its_webhook(world: World) {
        let order = world.place("o1", 1).await;
        let payment = world.pay("k1", &order, "pm_pending").await.expect(202).text("id");
        world.settle(&payment, "approved").await;
        eventually("the order is paid", || async { (world.order_status(&order).await == "paid").then_some(()) }).await;
        world.let_leases_run_out();
        assert_eq!(world.until_key_is("k1", "completed").await["statusCode"], 201);
    }

    #[settings(|s| s.lease = std::time::Duration::from_secs(26))]
    async fn a_pending_payment_without_client_or_webhook_is_settled_by_asking(world: World) {
        world.lose_webhooks().await;
        let order = world.place("o1", 1).await;
        let payment = world.pay("k1", &order, "pm_pending").await.expect(202).text("id");
        world.settle(&payment, "declined").await;
        world.let_leases_run_out();
        eventually("the payment is known to be declined", || async {
            (world.payment_status(&payment).await == "declined").then_some(())
        }).await;
        world.let_leases_run_out();
        assert_eq!(world.until_key_is("k1", "completed").await["statusCode"], 402);
    }
}
