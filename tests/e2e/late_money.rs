//! Money that arrives late: the seats again, or the money back once; never both, never neither.

use std::time::Duration;

use e2e::{World, eventually, on_both_stores};
use idem_local::Settings;
use serde_json::json;

const HOLD: Duration = Duration::from_secs(30 * 60);

fn short(settings: &mut Settings) {
    settings.acquirer_timeout = Duration::from_secs(1);
    settings.upstream_timeout = Duration::from_secs(2);
    settings.lease = Duration::from_secs(4);
}

async fn place_front_row(world: &World, key: &str, quantity: u32) -> String {
    world.post("/v1/orders", key, World::order_body_of("front-row", quantity)).await.expect(201).text("id")
}

async fn until_refunded(world: &World, payment: &str) {
    eventually("the payment is refunded", || async {
        (world.payment_status(payment).await == "refunded").then_some(())
    })
    .await;
    let acquirer = world.acquirer_payment(payment).await;
    assert_eq!((&acquirer["charges"], &acquirer["refunds"]), (&json!(1), &json!(1)));
}

on_both_stores! {
    async fn a_hold_lives_on_while_its_payment_is_undecided(world: World) {
        let order = place_front_row(&world, "o1", 4).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        world.advance(HOLD + Duration::from_secs(60));
        let refused = world.post("/v1/orders", "o2", World::order_body_of("front-row", 1)).await;
        refused.expect_problem(409, "sold_out", None, true);
        assert_eq!(world.order_status(&order).await, "pending");
        world.settle(&payment, "approved").await;
        eventually("the order is paid", || async { (world.order_status(&order).await == "paid").then_some(()) }).await;
    }

    async fn an_approval_after_the_hold_takes_the_seats_again_if_they_are_free(world: World) {
        let order = place_front_row(&world, "o1", 4).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        world.advance(HOLD * 2 + Duration::from_secs(1));
        assert_eq!(world.ticket_type("front-row").await["available"], 4, "at the latest hold + ttl");
        world.settle(&payment, "approved").await;
        eventually("the order is paid", || async { (world.order_status(&order).await == "paid").then_some(()) }).await;
        assert_eq!(world.ticket_type("front-row").await["sold"], 4);
        world.until_key_is("p1", "completed").await;
        assert!(world.pay("p1", &order, "pm_pending").await.expect(201).is_replay());
    }

    async fn an_approval_after_the_seats_are_gone_is_refunded_once(world: World) {
        let order = place_front_row(&world, "o1", 4).await;
        let payment = world.pay("p1", &order, "pm_pending").await.expect(202).text("id");
        world.advance(HOLD * 2 + Duration::from_secs(1));
        let other = place_front_row(&world, "o2", 4).await;
        world.settle(&payment, "approved").await;
        until_refunded(&world, &payment).await;
        world.until_key_is("p1", "completed").await;
        let answer = world.pay("p1", &order, "pm_pending").await;
        let answer = answer.expect_problem(409, "hold_expired", Some("refunded"), false);
        assert!(answer.is_replay());
        assert!(world.pay("p1", &order, "pm_pending").await.expect_same_as(&answer).is_replay());
        assert_eq!(world.order_status(&order).await, "expired", "the order keeps its status");
        world.pay("p2", &other, "pm_approved").await.expect(201);
        let front = world.ticket_type("front-row").await;
        assert_eq!((&front["sold"], &front["held"]), (&json!(4), &json!(0)));
        assert_eq!(world.acquirer_totals().await, json!({"charges": 2, "captured": 40000, "refunded": 20000}));
    }

    #[settings(short)]
    async fn a_charge_that_lands_after_it_was_given_up_is_refunded_never_adopted(world: World) {
        let order = world.place("o1", 1).await;
        let lost = world.pay("p1", &order, "pm_late_3000").await;
        lost.expect_problem(503, "upstream_unavailable", Some("in_doubt"), true);
        world.until_key_is("p1", "released").await;
        let paid = world.pay("p2", &order, "pm_approved").await.expect(201).text("id");
        eventually("the late charge has landed and gone back", || async {
            (world.acquirer_totals().await == json!({"charges": 2, "captured": 2000, "refunded": 1000})).then_some(())
        }).await;
        assert_eq!(world.acquirer_payment(&paid).await["refunds"], 0);
        assert_eq!(world.order_status(&order).await, "paid");
        let answer = eventually("the given-up key has its answer", || async {
            let reply = world.pay("p1", &order, "pm_late_3000").await;
            (reply.json()["retryable"] == false).then_some(reply)
        }).await;
        let answer = answer.expect_problem(409, "conflict", Some("payment_refunded"), false);
        assert!(world.pay("p1", &order, "pm_late_3000").await.expect_same_as(&answer).is_replay());
        assert_eq!(world.acquirer_totals().await["charges"], 2, "asking again charges nothing");
    }

    #[settings(short)]
    async fn the_end_of_the_watch_over_a_payment_that_was_given_up_is_counted(world: World) {
        let ended = || async {
            let url = format!("http://{}/metrics", world.addresses().orders_admin);
            let metrics = world.http().get(url).send().await.unwrap().text().await.unwrap();
            let line = metrics.lines().find_map(|line| line.strip_prefix("orders_watches_ended_total "));
            line.map_or(0, |count| count.parse::<u64>().unwrap())
        };
        let order = world.place("o1", 1).await;
        world.pay("p1", &order, "pm_error").await.expect(503);
        world.until_key_is("p1", "released").await;
        let before = ended().await;
        world.advance(Duration::from_secs(26 * 3600));
        eventually("it is said that nobody asks any more", || async { (ended().await > before).then_some(()) }).await;
    }

    #[settings(short)]
    async fn a_payment_given_up_with_nothing_found_may_be_tried_again_under_its_key(world: World) {
        let order = world.place("o1", 1).await;
        world.pay("p1", &order, "pm_error").await.expect(503);
        world.until_key_is("p1", "released").await;
        // The same payment id again, and the same fate.
        world.pay("p1", &order, "pm_error").await.expect_problem(503, "upstream_unavailable", Some("in_doubt"), true);
        world.until_key_is("p1", "released").await;
        assert_eq!(world.order_status(&order).await, "pending");
        assert_eq!(world.acquirer_totals().await["charges"], 0);
    }
}
