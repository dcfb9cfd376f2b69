//! Every row of the route table: shapes, success, and the refusals particular to it.

use e2e::{World, eventually, on_both_stores};
use http::Method;
use serde_json::json;

fn is_uuid(text: &str) -> bool {
    uuid::Uuid::parse_str(text).is_ok()
}

fn is_rfc3339_utc(text: &str) -> bool {
    humantime::parse_rfc3339(text).is_ok() && text.ends_with('Z')
}

on_both_stores! {
    async fn a_ticket_type_is_created_changed_and_read(world: World) {
        let body = json!({"venueId": "hall", "name": "Balcony", "price": {"amount": 2500, "currency": "EUR"}, "capacity": 10});
        let put = || world.ask(Method::PUT, "/v1/ticket-types/balcony").as_operator().json(&body);
        let expected = json!({
            "id": "balcony", "venueId": "hall", "name": "Balcony", "price": {"amount": 2500, "currency": "EUR"},
            "capacity": 10, "sold": 0, "held": 0, "available": 10
        });
        assert_eq!(put().send().await.expect(201).json(), expected);
        assert_eq!(put().send().await.expect(200).json(), expected);
        assert_eq!(world.ticket_type("balcony").await, expected);
        world.get("/v1/ticket-types/none").await.expect_problem(404, "not_found", None, false);
        let denied = world.ask(Method::PUT, "/v1/ticket-types/balcony").json(&body).send().await;
        denied.expect_problem(403, "forbidden", None, false);
    }

    async fn capacity_never_falls_below_what_is_sold_and_held(world: World) {
        world.put_ticket_type("few", 5).await.expect(201);
        let order = world.post("/v1/orders", "k1", World::order_body_of("few", 3)).await.expect(201).text("id");
        world.pay("k2", &order, "pm_approved").await.expect(201);
        world.post("/v1/orders", "k3", World::order_body_of("few", 1)).await.expect(201);
        world.put_ticket_type("few", 3).await.expect_problem(409, "conflict", Some("capacity_in_use"), false);
        let now = world.put_ticket_type("few", 4).await.expect(200).json();
        assert_eq!((&now["sold"], &now["held"], &now["available"]), (&json!(3), &json!(1), &json!(0)));
    }

    async fn an_order_is_placed_and_read(world: World) {
        let body = json!({"venueId": "demo", "items": [
            {"ticketTypeId": "general", "quantity": 2}, {"ticketTypeId": "front-row", "quantity": 1}
        ]});
        let placed = world.post("/v1/orders", "k1", body).await.expect(201);
        let order = placed.json();
        let id = order["id"].as_str().unwrap();
        assert_eq!(placed.header("location"), Some(format!("/v1/orders/{id}").as_str()));
        assert_eq!(placed.header("content-type"), Some("application/json"));
        assert!(!placed.is_replay());
        assert!(is_uuid(id));
        assert_eq!(order["status"], "pending");
        assert_eq!(order["venueId"], "demo");
        assert_eq!(order["items"], json!([
            {"ticketTypeId": "general", "quantity": 2, "unitPrice": {"amount": 1000, "currency": "EUR"}},
            {"ticketTypeId": "front-row", "quantity": 1, "unitPrice": {"amount": 5000, "currency": "EUR"}}
        ]));
        assert_eq!(order["total"], json!({"amount": 7000, "currency": "EUR"}));
        let tickets = order["tickets"].as_array().unwrap();
        assert_eq!(tickets.len(), 3, "one ticket a seat from the start");
        assert!(tickets.iter().all(|t| is_uuid(t["id"].as_str().unwrap()) && t["status"].is_string()));
        assert!(is_rfc3339_utc(order["createdAt"].as_str().unwrap()));
        assert!(is_rfc3339_utc(order["holdExpiresAt"].as_str().unwrap()));
        assert_eq!(world.order(id).await, order);
        let general = world.ticket_type("general").await;
        assert_eq!((&general["held"], &general["available"]), (&json!(2), &json!(98)));
    }

    async fn prices_are_frozen_when_the_order_is_placed(world: World) {
        world.put_ticket_type("gig", 5).await.expect(201);
        let order = world.post("/v1/orders", "k1", World::order_body_of("gig", 1)).await.expect(201).text("id");
        let dearer = json!({"venueId": "demo", "name": "gig", "price": {"amount": 9900, "currency": "EUR"}, "capacity": 5});
        world.ask(Method::PUT, "/v1/ticket-types/gig").as_operator().json(&dearer).send().await.expect(200);
        assert_eq!(world.order(&order).await["total"]["amount"], 1000);
        assert_eq!(world.pay("k2", &order, "pm_approved").await.expect(201).json()["amount"], 1000);
    }

    async fn orders_that_make_no_sense_are_refused(world: World) {
        world.ask(Method::PUT, "/v1/ticket-types/elsewhere").as_operator().json(&json!({
            "venueId": "other", "name": "x", "price": {"amount": 1, "currency": "EUR"}, "capacity": 5
        })).send().await.expect(201);
        let item = |id: &str, quantity: serde_json::Value| json!({"ticketTypeId": id, "quantity": quantity});
        let order = |items: Vec<serde_json::Value>| json!({"venueId": "demo", "items": items});
        let bad = [
            order(vec![item("elsewhere", json!(1))]),
            order(vec![item("general", json!(1)), item("general", json!(1))]),
            order(vec![item("general", json!(0))]),
            order(vec![item("general", json!(51))]),
            order(vec![item("general", json!(1.5))]),
            order(vec![item("general", json!("1"))]),
            order(vec![item("general", json!(null))]),
            order(vec![]),
            json!({"venueId": "demo"}),
            json!({"items": [item("general", json!(1))]}),
            json!({"venueId": "demo", "items": [item("general", json!(1))], "extra": 1}),
            json!({"venueId": "demo", "items": {"0": 1}}),
            json!([]),
            json!(null),
        ];
        for body in bad {
            world.post("/v1/orders", "k1", body.clone()).await.expect_problem(400, "invalid_request", None, false);
        }
        let unknown = world.post("/v1/orders", "k3", World::order_body_of("nothing", 1)).await;
        unknown.expect_problem(404, "not_found", None, false);
        // None of it bound the key.
        world.post("/v1/orders", "k2", World::order_body(1)).await.expect(201);
        assert_eq!(world.ticket_type("general").await["held"], 1);
    }

    async fn more_than_is_left_is_sold_out_and_can_be_tried_again(world: World) {
        let first = world.post("/v1/orders", "k1", World::order_body_of("front-row", 3)).await.expect(201).text("id");
        let wanted = || world.post("/v1/orders", "k2", World::order_body_of("front-row", 2));
        wanted().await.expect_problem(409, "sold_out", None, true);
        wanted().await.expect_problem(409, "sold_out", None, true);
        assert_eq!(world.key_state("k2").await.expect(200).json()["state"], "released");
        world.post_bare(&format!("/v1/orders/{first}/cancel")).await.expect(200);
        assert!(!wanted().await.expect(201).is_replay());
    }

    async fn another_tenants_order_is_not_found(world: World) {
        let order = world.place("k1", 1).await;
        let as_b = |method, path: String| world.ask(method, &path).api_key("sk_demo_b");
        let read = as_b(Method::GET, format!("/v1/orders/{order}")).send().await;
        read.expect_problem(404, "not_found", None, false);
        for verb in ["confirm", "cancel", "payment-link"] {
            let reply = as_b(Method::POST, format!("/v1/orders/{order}/{verb}")).send().await;
            reply.expect_problem(404, "not_found", None, false);
        }
        let body = json!({"orderId": order, "paymentMethod": "pm_approved"});
        let paid = as_b(Method::POST, "/v1/payments".into()).key("k2").json(&body).send().await;
        paid.expect_problem(404, "not_found", None, false);
        let ticket = world.order(&order).await["tickets"][0]["id"].as_str().unwrap().to_owned();
        let checked = as_b(Method::POST, format!("/v1/tickets/{ticket}/check-in")).send().await;
        checked.expect_problem(404, "not_found", None, false);
        let payment = world.pay("k3", &order, "pm_approved").await.expect(201).text("id");
        let read = as_b(Method::GET, format!("/v1/payments/{payment}")).send().await;
        read.expect_problem(404, "not_found", None, false);
    }

    async fn ids_that_are_none_are_not_found(world: World) {
        let none = uuid::Uuid::new_v4();
        for id in [none.to_string(), "x".into(), "%20".into(), "a%2Fb".into()] {
            for path in [format!("/v1/orders/{id}"), format!("/v1/payments/{id}"), format!("/v1/idempotency-keys/{id}")] {
                world.get(&path).await.expect_problem(404, "not_found", None, false);
            }
            for path in [format!("/v1/orders/{id}/cancel"), format!("/v1/tickets/{id}/check-in")] {
                world.post_bare(&path).await.expect_problem(404, "not_found", None, false);
                world.ask(Method::POST, &path).key(&path).send().await.expect_problem(404, "not_found", None, false);
            }
        }
    }

    async fn an_approved_payment_pays_the_order(world: World) {
        let order = world.place("k1", 2).await;
        let paid = world.pay("k2", &order, "pm_approved").await.expect(201);
        let payment = paid.json();
        let id = payment["id"].as_str().unwrap();
        assert_eq!(payment, json!({"id": id, "orderId": order, "status": "approved", "amount": 2000, "currency": "EUR"}));
        assert_eq!(world.get(&format!("/v1/payments/{id}")).await.expect(200).json(), payment);
        assert_eq!(world.order_status(&order).await, "paid");
        let acquirer = world.acquirer_payment(id).await;
        assert_eq!((&acquirer["status"], &acquirer["charges"]), (&json!("approved"), &json!(1)));
        let general = world.ticket_type("general").await;
        assert_eq!((&general["sold"], &general["held"]), (&json!(2), &json!(0)));
        world.pay("k3", &order, "pm_approved").await.expect_problem(409, "conflict", Some("not_pending"), false);
        assert_eq!(world.acquirer_totals().await["charges"], 1);
    }

    async fn confirm_marks_an_order_as_paid_outside(world: World) {
        let order = world.place("k1", 1).await;
        let path = format!("/v1/orders/{order}/confirm");
        assert_eq!(world.post_bare(&path).await.expect(200).text("status"), "paid");
        world.post_bare(&path).await.expect_problem(409, "conflict", Some("not_pending"), false);
        assert_eq!(world.ticket_type("general").await["sold"], 1);
        assert_eq!(world.acquirer_totals().await["charges"], 0);
        let second = world.place("k2", 1).await;
        let path = format!("/v1/orders/{second}/confirm");
        let keyed = world.ask(Method::POST, &path).key("k3").send().await.expect(200);
        assert!(!keyed.is_replay());
        let again = world.ask(Method::POST, &path).key("k3").json(&json!({})).send().await;
        assert!(again.expect_same_as(&keyed).is_replay(), "an empty body equals an empty object");
    }

    async fn cancel_frees_the_seats_at_once(world: World) {
        let order = world.place("k1", 3).await;
        let path = format!("/v1/orders/{order}/cancel");
        assert_eq!(world.post_bare(&path).await.expect(200).text("status"), "cancelled");
        assert_eq!(world.ticket_type("general").await["available"], 100);
        world.post_bare(&path).await.expect_problem(409, "conflict", Some("not_cancellable"), false);
        world.pay("k2", &order, "pm_approved").await.expect_problem(409, "conflict", Some("not_pending"), false);
        world.post_bare(&format!("/v1/orders/{order}/confirm")).await.expect_problem(409, "conflict", Some("not_pending"), false);
    }

    async fn cancelling_a_paid_order_gives_the_money_back_once(world: World) {
        let order = world.place("k1", 2).await;
        let payment = world.pay("k2", &order, "pm_approved").await.expect(201).text("id");
        let path = format!("/v1/orders/{order}/cancel");
        let cancelled = world.ask(Method::POST, &path).key("k3").send().await.expect(200);
        assert!(["refund_pending", "refunded"].contains(&cancelled.text("status").as_str()));
        assert_eq!(world.ticket_type("general").await["available"], 100);
        let again = world.ask(Method::POST, &path).key("k3").send().await;
        assert!(again.expect_same_as(&cancelled).is_replay());
        eventually("the order is refunded", || async {
            (world.order_status(&order).await == "refunded").then_some(())
        }).await;
        assert_eq!(world.payment_status(&payment).await, "refunded");
        let acquirer = world.acquirer_payment(&payment).await;
        assert_eq!((&acquirer["charges"], &acquirer["refunds"]), (&json!(1), &json!(1)));
        assert_eq!(world.acquirer_totals().await, json!({"charges": 1, "captured": 2000, "refunded": 2000}));
    }

    async fn a_ticket_lets_in_once(world: World) {
        let order = world.place("k1", 2).await;
        let ticket = world.order(&order).await["tickets"][0]["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/tickets/{ticket}/check-in");
        world.post_bare(&path).await.expect_problem(409, "conflict", Some("not_paid"), false);
        world.pay("k2", &order, "pm_approved").await.expect(201);
        let first = world.post_bare(&path).await.expect(200).json();
        assert_eq!((&first["ticketId"], &first["alreadyUsed"]), (&json!(ticket), &json!(false)));
        assert!(is_rfc3339_utc(first["usedAt"].as_str().unwrap()));
        let again = world.post_bare(&path).await.expect(200).json();
        assert_eq!((&again["alreadyUsed"], &again["usedAt"]), (&json!(true), &first["usedAt"]));
        let cancel = world.post_bare(&format!("/v1/orders/{order}/cancel")).await;
        cancel.expect_problem(409, "conflict", Some("not_cancellable"), false);
        // A retry with its key is not a second use.
        let other = world.order(&order).await["tickets"][1]["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/tickets/{other}/check-in");
        let keyed = world.ask(Method::POST, &path).key("k3").send().await.expect(200);
        let replay = world.ask(Method::POST, &path).key("k3").send().await;
        assert!(replay.expect_same_as(&keyed).is_replay());
        assert_eq!(keyed.json()["alreadyUsed"], false);
    }

    async fn a_payment_link_is_given_for_a_pending_order_and_its_key_is_ignored(world: World) {
        let order = world.place("k1", 1).await;
        let path = format!("/v1/orders/{order}/payment-link");
        let link = world.ask(Method::POST, &path).key("k9").send().await.expect(200);
        assert!(link.json()["url"].as_str().unwrap().starts_with("http"));
        assert!(is_rfc3339_utc(&link.text("expiresAt")));
        world.key_state("k9").await.expect_problem(404, "not_found", None, false);
        world.post_bare(&format!("/v1/orders/{order}/cancel")).await.expect(200);
        world.post_bare(&path).await.expect_problem(409, "conflict", Some("not_pending"), false);
    }

    async fn the_state_of_a_key_is_shown_to_its_owner_only(world: World) {
        let key = "shop/7 ☂";
        let path = "/v1/idempotency-keys/shop%2F7%20%E2%98%82";
        world.get(path).await.expect_problem(404, "not_found", None, false);
        let placed = world.post("/v1/orders", key, World::order_body(1)).await.expect(201);
        let state = world.get(path).await.expect(200).json();
        assert_eq!(state["key"], key);
        assert_eq!(state["state"], "completed");
        assert_eq!(state["attempts"], 1);
        assert_eq!(state["statusCode"], 201);
        assert!(state["leaseExpiresAt"].is_null());
        for time in ["createdAt", "expiresAt"] {
            assert!(is_rfc3339_utc(state[time].as_str().unwrap()));
        }
        assert_eq!(state.as_object().unwrap().len(), 7, "never a body: {state}");
        assert!(!state.to_string().contains(&placed.text("id")));
        let by_b = world.ask(Method::GET, path).api_key("sk_demo_b").send().await;
        by_b.expect_problem(404, "not_found", None, false);
        world.advance(world.settings().retention);
        world.get(path).await.expect_problem(404, "not_found", None, false);
    }
}
