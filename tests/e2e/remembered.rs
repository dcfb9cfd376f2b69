//! What is remembered, for whom, how it is compared, and for how long.

use e2e::{World, eventually, on_both_stores};
use http::Method;
use serde_json::{Value, json};

fn raw(world: &World, key: &str, body: &str) -> impl Future<Output = e2e::Reply> {
    world.ask(Method::POST, "/v1/orders").key(key).bytes("application/json", body.to_owned()).send()
}

on_both_stores! {
    async fn bodies_that_mean_the_same_are_the_same_request(world: World) {
        let first = raw(&world, "k1", r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2}]}"#).await.expect(201);
        for same in [
            r#" { "items" : [ { "quantity" : 2 , "ticketTypeId" : "general" } ] , "venueId" : "demo" } "#,
            r#"{"venueId":"d\u0065mo","items":[{"ticketTypeId":"general","quantity":2.0}]}"#,
            r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2e0}]}"#,
            r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":20e-1}]}"#,
        ] {
            assert!(raw(&world, "k1", same).await.expect_same_as(&first).is_replay(), "{same}");
        }
        assert_eq!(world.ticket_type("general").await["held"], 2);
    }

    async fn the_same_key_with_another_request_is_refused(world: World) {
        let order = world.place("k1", 1).await;
        let other_body = world.post("/v1/orders", "k1", World::order_body(2)).await;
        let refused = other_body.expect_problem(422, "idempotency_key_reuse", None, false);
        assert!(refused.header("retry-after").is_none());
        assert_eq!(refused.header("link"), Some("</docs/idempotency>; rel=\"describedby\""));
        assert!(refused.text("detail").contains("use a new key for each new purchase"), "it names the rule");
        let other_query = world.ask(Method::POST, "/v1/orders?x=1").key("k1").json(&World::order_body(1)).send().await;
        other_query.expect_problem(422, "idempotency_key_reuse", None, false);
        let other_path = world.ask(Method::POST, &format!("/v1/orders/{order}/cancel")).key("k1").send().await;
        other_path.expect_problem(422, "idempotency_key_reuse", None, false);
        assert_eq!(world.order_status(&order).await, "pending");
        world.pay("k1", &order, "pm_approved").await.expect_problem(422, "idempotency_key_reuse", None, false);
        // The id in the path is part of the request.
        let second = world.place("k2", 1).await;
        let cancel = |order: &str| world.ask(Method::POST, &format!("/v1/orders/{order}/cancel")).key("k3").send();
        cancel(&second).await.expect(200);
        cancel(&order).await.expect_problem(422, "idempotency_key_reuse", None, false);
        assert_eq!(world.order_status(&order).await, "pending");
        assert_eq!(world.acquirer_totals().await["charges"], 0);
        assert!(world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201).is_replay());
    }

    async fn two_tenants_never_meet_and_a_rotated_api_key_loses_nothing(world: World) {
        let a = world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201);
        let as_b = || world.ask(Method::POST, "/v1/orders").api_key("sk_demo_b").key("k1").json(&World::order_body(1));
        let b = as_b().send().await.expect(201);
        assert!(!b.is_replay());
        assert_ne!(a.text("id"), b.text("id"));
        assert!(as_b().send().await.expect_same_as(&b).is_replay());
        // The operator's key belongs to a tenant of its own, and `sk_demo_a2` is the new key of `demo-a`.
        let rotated = world.ask(Method::POST, "/v1/orders").api_key("sk_test_a_rotated").key("k1");
        let replay = rotated.json(&World::order_body(1)).send().await;
        assert!(replay.expect_same_as(&a).is_replay());
    }

    async fn refusals_are_forgotten_and_bind_only_the_request(world: World) {
        // 400 is decided before the key is touched, so the mended body may use it.
        world.post("/v1/orders", "k1", World::order_body(51)).await.expect(400);
        assert!(!world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201).is_replay());
        // 404 and 409 execute again, but another body is still another request.
        let gone = World::order_body_of("soon", 1);
        world.post("/v1/orders", "k2", gone.clone()).await.expect(404);
        world.post("/v1/orders", "k2", World::order_body(1)).await.expect_problem(422, "idempotency_key_reuse", None, false);
        world.put_ticket_type("soon", 5).await.expect(201);
        let placed = world.post("/v1/orders", "k2", gone).await.expect(201);
        assert!(!placed.is_replay());
        assert_eq!(world.key_state("k2").await.json()["attempts"], 2);
    }

    async fn a_declined_payment_is_remembered_and_another_key_may_pay(world: World) {
        let order = world.place("k1", 1).await;
        let declined = world.pay("k2", &order, "pm_declined").await.expect_problem(402, "payment_declined", None, false);
        assert!(!declined.is_replay());
        assert!(declined.header("idempotency-key-expires").is_some());
        let again = world.pay("k2", &order, "pm_declined").await;
        assert!(again.expect_same_as(&declined).is_replay());
        assert_eq!(world.order_status(&order).await, "pending", "a declined payment keeps the hold");
        world.pay("k3", &order, "pm_approved").await.expect(201);
        assert_eq!(world.acquirer_totals().await["charges"], 1);
    }

    async fn after_the_retention_the_key_is_new(world: World) {
        let first = world.post("/v1/orders", "k1", World::order_body(1)).await.expect(201);
        let order = world.place("k2", 1).await;
        let payment = world.pay("k3", &order, "pm_declined").await.expect(402);
        world.advance(world.settings().retention - std::time::Duration::from_secs(5));
        assert!(world.post("/v1/orders", "k1", World::order_body(1)).await.expect_same_as(&first).is_replay());
        world.advance(std::time::Duration::from_secs(5));
        // Another body is welcome too: the key is new.
        let second = world.post("/v1/orders", "k1", World::order_body(2)).await.expect(201);
        assert!(!second.is_replay());
        assert_ne!(second.text("id"), first.text("id"));
        // A new generation, a new payment id.
        let order = second.text("id");
        let paid = world.pay("k3", &order, "pm_approved").await.expect(201);
        assert!(!paid.is_replay());
        let ids: Vec<Value> = vec![json!(paid.text("id")), payment.json()["details"].clone()];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
    }

    async fn a_server_error_is_not_remembered(world: World) {
        let order = world.place("k1", 1).await;
        let outage = |seconds: u64| world.sandbox(Method::POST, "/sandbox/outage", Some(json!({"seconds": seconds})));
        outage(600).await;
        let failed = world.pay("k2", &order, "pm_approved").await.expect(503);
        assert!(failed.header("retry-after").is_some());
        assert!(!failed.is_replay());
        outage(0).await;
        let paid = eventually("the retry is approved", || async {
            let reply = world.pay("k2", &order, "pm_approved").await;
            (reply.status == 201).then_some(reply)
        }).await;
        assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
        assert_eq!(world.order_status(&order).await, "paid");
    }
}
