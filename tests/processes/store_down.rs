//! The idempotency service is away: nothing keyed runs unprotected, everything else goes on.

use std::time::Duration;

use e2e::{Fleet, FleetSettings};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_service_keyed_requests_are_refused_and_others_go_on_on_postgres() {
    let mut fleet = Fleet::start(FleetSettings::default()).await;
    let body = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]});
    let order = fleet.until_answered("/v1/orders", "k0", &body).await.expect(201).text("id");
    for silent in [false, true] {
        // Dead, and then only silent: the call hangs instead of failing.
        if silent {
            fleet.idem.signal("STOP")
        } else {
            fleet.idem.kill()
        }
        let cancel = format!("/v1/orders/{order}/cancel");
        for (path, body) in [("/v1/orders", &body), (cancel.as_str(), &json!({}))] {
            let began = Instant::now();
            // A Reserve that only hung may still land: each path has a key of its own.
            let refused = fleet.post(path, path, body).await.expect("an answer");
            assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
            let refused = refused.expect_problem(503, "idempotency_unavailable", None, true);
            assert!(refused.header("retry-after").is_some());
        }
        let read = fleet.get(&format!("/v1/orders/{order}")).await.expect("an answer").expect(200);
        assert_eq!(read.text("status"), "pending");
        if silent {
            fleet.idem.signal("CONT")
        } else {
            fleet.idem.restart()
        }
        fleet.until_ready().await;
    }
    assert_eq!(fleet.held_in_database().await, 1, "nothing was executed");
    fleet.until_answered("/v1/orders", "/v1/orders", &body).await.expect(201);
    let unkeyed = fleet.post_bare(&format!("/v1/orders/{order}/cancel")).await.expect("an answer");
    assert_eq!(unkeyed.expect(200).text("status"), "cancelled");
}
