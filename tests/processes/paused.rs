//! A gateway that is stopped past its lease and wakes when another has finished its key.

use e2e::{Fleet, FleetSettings, Way, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_wakes_late_changes_nothing_on_postgres() {
    let fleet = Fleet::start(FleetSettings::default()).await;
    let heir = fleet.second_gateway().await;
    let body = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 2}]});
    // It has the key, and the order is placed, but it never reads the answer.
    fleet.to_orders.freeze(Way::Answer);
    let asking = fleet.post("/v1/orders", "k1", &body);
    let meanwhile = async {
        eventually("the seats are held", || async { (fleet.held_in_database().await == 2).then_some(()) }).await;
        fleet.gateway.signal("STOP");
        fleet.to_orders.thaw();
        let answer = eventually("the heir has answered", || async {
            let reply = heir.post("/v1/orders", "k1", &body).await?;
            (reply.status == 201).then_some(reply)
        })
        .await;
        assert!(answer.is_replay());
        fleet.gateway.signal("CONT");
        answer
    };
    let (late, answer) = futures::join!(asking, meanwhile);
    // Whatever the sleeper tells its client, it is the heir's answer or a refusal; and nothing changes.
    if let Some(late) = late {
        assert!(late.status != 201 || late.body == answer.body, "{late:?}");
    }
    let replay = heir.post("/v1/orders", "k1", &body).await.unwrap();
    assert!(replay.expect_same_as(&answer).is_replay());
    assert_eq!(fleet.held_in_database().await, 2);
}
