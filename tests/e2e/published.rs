//! The published policy says what is remembered; here it is held against what is.

use std::time::Duration;

use e2e::{Reply, Store, World, eventually};
use http::Method;
use serde_json::json;

/// The first two cells of each row of the table: which answer, and whether it is remembered.
async fn claims(world: &World) -> Vec<(String, bool)> {
    let page = policy(world).await;
    let (_, section) = page.split_once("<h2 id=\"remembered\">").expect("the section is there");
    let (table, _) = section.split_once("</table>").expect("it has a table");
    let rows = table.split("<tr><td>").skip(1).map(|row| {
        let mut cells = row.split("</td><td>");
        let (answer, remembered) = (cells.next().unwrap(), cells.next().unwrap());
        assert!(remembered.starts_with("yes") || remembered.starts_with("no"), "{remembered}");
        (answer.replace("<code>", "").replace("</code>", "").replace('\n', " "), remembered.starts_with("yes"))
    });
    rows.collect()
}

async fn policy(world: &World) -> String {
    let page = world.ask(Method::GET, "/docs/idempotency").api_key("").send().await.expect(200);
    String::from_utf8(page.body.to_vec()).unwrap()
}

/// What the first row that names this answer claims.
fn claimed(claims: &[(String, bool)], answer: &str) -> bool {
    let row = claims.iter().find(|(named, _)| named.contains(answer));
    row.unwrap_or_else(|| panic!("no row names {answer}: {claims:?}")).1
}

/// An approval of an order whose seats are gone meanwhile.
async fn late_approval(world: &World) -> (String, Reply) {
    let front_row = |key: &'static str| world.post("/v1/orders", key, World::order_body_of("front-row", 4));
    let order = front_row("late-order").await.expect(201).text("id");
    let payment = world.pay("late", &order, "pm_pending").await.expect(202).text("id");
    world.advance(world.settings().hold_ttl * 2 + Duration::from_secs(1));
    front_row("rival").await.expect(201);
    world.settle(&payment, "approved").await;
    let answer = eventually("the late approval has its answer", || async {
        let reply = world.pay("late", &order, "pm_pending").await;
        (reply.json()["retryable"] == false).then_some(reply)
    })
    .await;
    (order, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_table_of_what_is_remembered_holds() {
    let world = World::start(Store::Sqlite).await;
    let claims = claims(&world).await;
    let (late_order, late) = late_approval(&world).await;
    late.expect_problem(409, "hold_expired", Some("refunded"), false);

    let order = world.place("order", 1).await;
    let pay = |order: &str, method: &str| json!({"orderId": order, "paymentMethod": method});
    let big = json!({"venueId": "x".repeat(300 * 1024)});
    // Which answer it is in the table, and the request that gets it each time.
    let table = [
        ("2xx but 202", 201, "/v1/orders", World::order_body(1)),
        ("402", 402, "/v1/payments", pay(&order, "pm_declined")),
        ("hold_expired", 409, "/v1/payments", pay(&late_order, "pm_pending")),
        ("400", 400, "/v1/orders", World::order_body(51)),
        ("404", 404, "/v1/orders", World::order_body_of("nothing", 1)),
        ("every other 409", 409, "/v1/orders", World::order_body_of("front-row", 4)),
        ("413", 413, "/v1/orders", big),
    ];
    for (answer, status, path, body) in table {
        let key = if answer == "hold_expired" { "late" } else { answer };
        let first = world.post(path, key, body.clone()).await.expect(status);
        let second = world.post(path, key, body).await.expect(status);
        assert_eq!(second.is_replay(), claimed(&claims, answer), "{answer}");
        assert_eq!(second.header("idempotency-key-expires").is_some(), claimed(&claims, answer), "{answer}");
        assert!(!second.is_replay() || second.body == first.body, "{answer}");
    }
    let mismatched = || world.post("/v1/orders", "2xx but 202", World::order_body(2));
    for _ in 0..2 {
        assert_eq!(mismatched().await.expect(422).is_replay(), claimed(&claims, "422"));
    }
    for _ in 0..2 {
        let stranger = world.ask(Method::POST, "/v1/orders").api_key("sk_nobody").key("401");
        let refused = stranger.json(&World::order_body(1)).send().await.expect(401);
        assert_eq!(refused.is_replay(), claimed(&claims, "401"));
        let text = world.ask(Method::POST, "/v1/orders").key("415").bytes("text/plain", "{}").send().await.expect(415);
        assert_eq!(text.is_replay(), claimed(&claims, "415"));
    }

    // 202 is not decided: a repeat learns that, and later the answer.
    let payment = world.pay("202", &order, "pm_pending").await.expect(202).text("id");
    let undecided = world.pay("202", &order, "pm_pending").await.expect(409);
    assert_eq!(undecided.is_replay(), claimed(&claims[3..], "202"));
    world.settle(&payment, "declined").await;
    // 503 is asked about at every try, and never replayed.
    world.sandbox(Method::POST, "/sandbox/outage", Some(json!({"seconds": 600}))).await;
    let other = world.place("other", 1).await;
    for _ in 0..2 {
        let failed = world.pay("503", &other, "pm_approved").await;
        assert!([409, 503].contains(&failed.status.as_u16()), "{}", failed.status);
        assert_eq!(failed.is_replay(), claimed(&claims, "503"));
    }
    world.sandbox(Method::POST, "/sandbox/outage", Some(json!({"seconds": 0}))).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_has_the_rules_that_integrators_get_wrong() {
    let world = World::start(Store::Sqlite).await;
    let page = policy(&world).await;
    for rule in [
        // Keys do not deduplicate for ever, nor purchases that are meant.
        "A new key is a new purchase",
        "the same request under it would be a <b>new purchase</b>",
        // Whoever makes the key after the crash has none to retry with.
        "store it with the purchase <b>before</b> the first try",
        // The receiver of an event.
        "id=\"webhooks\"",
        "use the event's id as the key",
    ] {
        assert!(page.contains(rule), "{rule}");
    }
    world.stop().await;
}
