//! Seats: never oversold, held only while the hold lives, free again without anybody asking.

use std::time::Duration;

use e2e::{PrivateDatabase, Store, World, eventually, on_both_stores};
use serde_json::json;

const HOLD: Duration = Duration::from_secs(30 * 60);

on_both_stores! {
    async fn two_hundred_buyers_of_two_share_ten_seats_without_overselling(world: World) {
        world.put_ticket_type("club", 10).await.expect(201);
        let buyers = (0..200).map(|n| {
            let world = world.clone();
            async move { world.post_patiently("/v1/orders", &format!("buyer-{n}"), World::order_body_of("club", 2)).await }
        });
        let replies = futures::future::join_all(buyers).await;
        let placed = replies.iter().filter(|r| r.status == 201).count();
        let sold_out = replies.iter().filter(|r| r.status == 409 && r.json()["error"] == "sold_out").count();
        assert_eq!((placed, sold_out), (5, 195));
        let club = world.ticket_type("club").await;
        assert_eq!(club["sold"].as_u64().unwrap() + club["held"].as_u64().unwrap(), 10);
        assert_eq!(club["available"], 0);
    }

    async fn a_hold_counts_only_while_it_lives(world: World) {
        let order = world.post("/v1/orders", "k1", World::order_body_of("front-row", 4)).await.expect(201).text("id");
        world.advance(HOLD - Duration::from_secs(5));
        world.post("/v1/orders", "k2", World::order_body_of("front-row", 1)).await.expect_problem(409, "sold_out", None, true);
        world.advance(Duration::from_secs(5));
        // At once, whether or not a sweeper has run.
        let second = world.post("/v1/orders", "k4", World::order_body_of("front-row", 4)).await.expect(201);
        assert!(!second.is_replay());
        assert_eq!(world.order_status(&order).await, "expired");
        world.pay("k3", &order, "pm_approved").await.expect_problem(409, "hold_expired", Some("not_charged"), false);
        let confirm = world.post_bare(&format!("/v1/orders/{order}/confirm")).await;
        confirm.expect_problem(409, "hold_expired", Some("not_charged"), false);
        assert_eq!(world.acquirer_totals().await["charges"], 0);
        let front = world.ticket_type("front-row").await;
        assert_eq!((&front["held"], &front["sold"]), (&json!(4), &json!(0)));
    }

    async fn abandoned_holds_free_their_seats_without_traffic(world: World) {
        for n in 0..20 {
            world.place(&format!("k{n}"), 5).await;
        }
        assert_eq!(world.ticket_type("general").await["available"], 0);
        world.advance(HOLD);
        eventually("all seats are free", || async {
            (world.ticket_type("general").await["available"] == 100).then_some(())
        }).await;
    }

    async fn a_replayed_order_holds_nothing_more(world: World) {
        for _ in 0..20 {
            world.post("/v1/orders", "k1", World::order_body(3)).await.expect(201);
        }
        assert_eq!(world.ticket_type("general").await["held"], 3);
    }

    async fn buyers_and_cancellations_together_keep_the_books(world: World) {
        world.put_ticket_type("mix", 20).await.expect(201);
        let shoppers = (0..60).map(|n| {
            let world = world.clone();
            async move {
                let reply = world.post("/v1/orders", &format!("m{n}"), World::order_body_of("mix", 1 + n % 3)).await;
                if reply.status != 201 {
                    return;
                }
                let order = reply.text("id");
                match n % 4 {
                    0 => { world.post_bare(&format!("/v1/orders/{order}/cancel")).await.expect(200); }
                    1 => { world.pay(&format!("p{n}"), &order, "pm_approved").await.expect(201); }
                    2 => { world.post_bare(&format!("/v1/orders/{order}/confirm")).await.expect(200); }
                    _ => {}
                }
            }
        });
        let watched = world.clone();
        let (watching, done) = (async move {
            for _ in 0..50 {
                let mix = watched.ticket_type("mix").await;
                assert!(mix["sold"].as_i64().unwrap() + mix["held"].as_i64().unwrap() <= 20, "{mix}");
            }
        }, futures::future::join_all(shoppers));
        futures::join!(watching, done);
        let mix = world.ticket_type("mix").await;
        let taken = mix["sold"].as_i64().unwrap() + mix["held"].as_i64().unwrap();
        assert!(taken <= 20 && mix["available"] == 20 - taken, "{mix}");
    }
}

/// Reading a ticket type does not count holds that are over, so the rows are looked at behind everybody's back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_abandoned_holds_are_swept_without_a_request_on_postgres() {
    let database = PrivateDatabase::create().await;
    let url = database.url.clone();
    let world = World::start_with(Store::Sqlite, |s| s.data = idem_local::Data::Postgres(url)).await;
    let buyers = (0..100).map(|n| {
        let world = world.clone();
        async move { world.post_patiently("/v1/orders", &format!("k{n}"), World::order_body(1)).await.expect(201) }
    });
    futures::future::join_all(buyers).await;
    let held = "SELECT held FROM ticket_types WHERE id = 'general'";
    assert_eq!(database.number(held).await, 100);
    world.advance(HOLD + Duration::from_secs(60));
    eventually("the rows say that the seats are free", || async { (database.number(held).await == 0).then_some(()) })
        .await;
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 'expired'").await, 100);
    world.stop().await;
}
