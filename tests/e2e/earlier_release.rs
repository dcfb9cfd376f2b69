//! Keys that a release before this one has left behind are honoured: scope, fingerprint and ids are the same for good.
//!
//! The rows are written as release 0.1 writes them. A change that would orphan the keys of running clients breaks this test;
//! it is not to be mended by changing the rows.

use e2e::{PrivateDatabase, Store, World, eventually};
use http::Method;

/// Of `POST /v1/orders` with [`BODY`].
const FINGERPRINT: &str = "2ec401ccd7022753cca364a7cf4e632ea43982e8dd6392375f079bd7abb9d962";
const BODY: &str = r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2}]}"#;
const ANSWER: &str = r#"{"id":"0c3a1f5e-7a1d-5d0e-9b64-3a5f0d1b2c4e","as":"it was then"}"#;
/// Of the key that was left in doubt, and the order that follows from it.
const OPERATION: &str = "3d0b9f0a-52b7-4a37-8d45-0a4c8c1f6e21";
const ORDER: &str = "78888d30-a0d7-5a44-85d2-cd640dd0e2d2";

fn rows() -> String {
    let columns =
        "scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts,
                   retention_micros, trace_context, created_at, updated_at, version";
    let common = |key: &str, operation: &str| {
        format!(
            "'rest/demo-a', '{key}', '{operation}', 1, '\\x{FINGERPRINT}', 'a2f7c3de-1d1c-4a7e-a57c-0f8f6f0f9b11', 'reserve',
             '', 1, 86400000000, '', now(), now(), 2"
        )
    };
    format!(
        "INSERT INTO idem_keys ({columns}, state, completed_at, expires_at, response_status, response_headers, response_body,
                                response_resource_id)
         VALUES ({}, 'completed', now(), now() + interval '24 hours', 201,
                 '[[\"content-type\",\"application/json\"],[\"location\",\"/v1/orders/0c3a1f5e\"]]',
                 convert_to('{ANSWER}', 'UTF8'), '0c3a1f5e');
         INSERT INTO idem_keys ({columns}, state) VALUES ({}, 'in_doubt');",
        common("completed", "5e1a6a3c-9f4e-4f6b-8a3e-2b7d90c4f1aa"),
        common("in-doubt", OPERATION),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_earlier_release_are_honoured_on_postgres() {
    let database = PrivateDatabase::create().await;
    let url = database.url.clone();
    let world = World::start_with(Store::Sqlite, |s| s.data = idem_local::Data::Postgres(url)).await;
    database.execute(&rows()).await;
    let ask = |key: &str| world.ask(Method::POST, "/v1/orders").key(key).bytes("application/json", BODY).send();
    let replay = ask("completed").await.expect(201);
    assert!(replay.is_replay());
    assert_eq!((&replay.body[..], replay.header("location")), (ANSWER.as_bytes(), Some("/v1/orders/0c3a1f5e")));
    let other = world.post("/v1/orders", "completed", World::order_body(1)).await;
    other.expect_problem(422, "idempotency_key_reuse", None, false);
    // Unknown everywhere: whoever is first, it ends in the order that follows from the operation of then, or is free for it.
    let placed = eventually("the key in doubt is answered", || async {
        let reply = ask("in-doubt").await;
        assert!(reply.status == 201 || reply.json()["retryable"] == true, "{}", reply.status);
        (reply.status == 201).then_some(reply)
    })
    .await;
    assert_eq!(placed.text("id"), ORDER);
    world.stop().await;
}
