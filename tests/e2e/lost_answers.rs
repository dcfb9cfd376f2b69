//! The store has committed and its answer is lost; or the store is away.

use std::time::Duration;

use e2e::{PrivateDatabase, Road, Store, World, eventually};
use idem_local::Data;
use tokio::time::Instant;

/// A world that reaches Postgres by a road which can break.
async fn on_a_road() -> (World, Road, PrivateDatabase) {
    let database = PrivateDatabase::create().await;
    let (user, rest) = database.url.rsplit_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let road = Road::to(server.parse().unwrap()).await;
    let url = format!("{user}@{}/{name}", road.address());
    let world = World::start_with(Store::Sqlite, |settings| settings.data = Data::Postgres(url)).await;
    (world, road, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_met_as_ones_own_in_the_same_request_on_postgres() {
    let (world, road, _database) = on_a_road().await;
    // Every statement is prepared, so that what is lost next is the answer to a write.
    world.place("before", 1).await;
    // The Reserve carries the key. The Complete carries the rendered answer, which nothing before it does.
    for (nth, text) in ["lost-reserve", "\"unitPrice\":"].into_iter().enumerate() {
        let key = ["lost-reserve", "lost-complete"][nth];
        road.lose_the_answer_to(text);
        let placed = world.post("/v1/orders", key, World::order_body(2)).await.expect(201);
        assert_eq!(road.lost(), nth + 1, "{key}");
        assert!(!placed.is_replay());
        let state = world.until_key_is(key, "completed").await;
        assert_eq!(state["attempts"], 1, "{key}");
        let again = world.post("/v1/orders", key, World::order_body(2)).await.expect(201);
        assert!(again.is_replay() && again.body == placed.body, "{key}");
    }
    assert_eq!(world.ticket_type("general").await["held"], 5);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_store_nothing_is_executed_and_the_client_is_told_in_time_on_postgres() {
    let (world, road, database) = on_a_road().await;
    let order = world.place("before", 1).await;
    road.set_closed(true);
    let cancel = format!("/v1/orders/{order}/cancel");
    let pay = serde_json::json!({"orderId": order, "paymentMethod": "pm_approved"});
    let refused = [
        ("/v1/orders", World::order_body(1)),
        ("/v1/payments", pay.clone()),
        // Whoever sends a key where it is optional has asked for protection, too.
        (cancel.as_str(), serde_json::json!({})),
    ];
    for (path, body) in refused {
        let began = Instant::now();
        let refused = world.post(path, path, body).await.expect_problem(503, "idempotency_unavailable", None, true);
        assert!(refused.header("retry-after").is_some(), "{path}");
        assert!(began.elapsed() < Duration::from_millis(2500), "{path}: {:?}", began.elapsed());
    }
    assert_eq!(world.acquirer_totals().await["charges"], 0);
    assert_eq!(database.number("SELECT count(*) FROM orders").await, 1);
    assert_eq!(database.number("SELECT count(*) FROM payments").await, 0);
    assert_eq!(database.number("SELECT count(*) FROM idem_keys").await, 1);

    road.set_closed(false);
    let paid = eventually("the same request with the same key is answered", || async {
        let reply = world.post("/v1/payments", "/v1/payments", pay.clone()).await;
        assert!(reply.status == 201 || reply.json()["retryable"] == true, "{}", reply.status);
        (reply.status == 201).then_some(reply)
    })
    .await;
    assert!(!paid.is_replay());
    assert_eq!(world.acquirer_totals().await["charges"], 1);
    world.stop().await;
}
