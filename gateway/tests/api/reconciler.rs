//! Keys whose client never comes back.

use crate::{
    keyed::{order, payment, refusal},
    world::{World, eventually, send},
};
use idem_core::StateName;
use idem_proto::orders::v1::{self as proto, close_response, lookup_response, result::Kind};
use std::time::Duration;
use tonic::Status;

const ORDER: &str = r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2}]}"#;

async fn world() -> World {
    World::start_with(|config| {
        config.lease = Duration::from_secs(2);
        config.upstream_timeout = Duration::from_millis(1500);
    })
    .await
}

fn settled(operation: proto::OperationKind, kind: Kind, label: proto::Label) -> proto::Settled {
    let result = Some(proto::Result { operation: operation.into(), kind: Some(kind) });
    proto::Settled { result, label: label.into() }
}

fn finds(world: &World, outcome: lookup_response::Outcome) {
    world.orders.on("lookup", move |request: proto::LookupRequest| {
        // Nobody waits, and the fence is up.
        assert!(request.background && request.fencing_token == 2);
        let answer = proto::LookupResponse { outcome: Some(outcome.clone()) };
        async move { Ok(answer) }
    });
}

fn closes(world: &World, outcome: close_response::Outcome) {
    world.orders.always::<proto::CloseRequest, _>("close", Ok(proto::CloseResponse { outcome: Some(outcome) }));
}

async fn becomes(world: &World, state: StateName) {
    eventually(state.as_str(), || world.idem.state("k") == Some(state)).await;
}

#[tokio::test]
async fn a_kept_answer_is_stored_as_its_own_request_would_have() {
    let world = world().await;
    world.idem.strand("k");
    let kind = Kind::Order(order(proto::OrderStatus::Pending));
    finds(
        &world,
        lookup_response::Outcome::Settled(settled(proto::OperationKind::PlaceOrder, kind.clone(), proto::Label::Final)),
    );
    becomes(&world, StateName::Completed).await;
    assert_eq!(world.orders.calls(), ["lookup"]);

    // The same result, answered to the request itself.
    let answer = proto::Answer {
        label: proto::Label::Final.into(),
        result: settled(proto::OperationKind::PlaceOrder, kind, proto::Label::Final).result,
        replayed: false,
    };
    let response = proto::PlaceOrderResponse { answer: Some(answer) };
    world.orders.always::<proto::PlaceOrderRequest, _>("place_order", Ok(response));
    let own = send(world.post("/v1/orders", "own", ORDER)).await;
    let replay = send(world.post("/v1/orders", "own", ORDER)).await;
    let shown = world.get("/v1/idempotency-keys/k").await.json();
    assert_eq!((shown["statusCode"].as_u64(), own.status), (Some(201), 201));
    let stored = world.idem.stored("k");
    assert_eq!(stored, world.idem.stored("own"));
    assert_eq!(stored.body(), replay.text.as_bytes());
}

#[tokio::test]
async fn a_kept_refusal_without_effect_releases_the_key() {
    let world = world().await;
    world.idem.strand("k");
    let kind = refusal(proto::RefusalReason::SoldOut);
    finds(
        &world,
        lookup_response::Outcome::Settled(settled(proto::OperationKind::PlaceOrder, kind, proto::Label::NoEffect)),
    );
    becomes(&world, StateName::Released).await;
}

#[tokio::test]
async fn what_is_unknown_everywhere_is_closed_then_released_and_never_executed() {
    let world = world().await;
    world.idem.strand("k");
    finds(&world, lookup_response::Outcome::Unknown(proto::Unknown {}));
    closes(&world, close_response::Outcome::Closed(proto::Closed {}));
    becomes(&world, StateName::Released).await;
    assert_eq!(world.orders.calls(), ["lookup", "close"]);
}

#[tokio::test]
async fn a_payment_that_turns_up_while_it_is_closed_is_stored() {
    let world = world().await;
    world.idem.strand("k");
    finds(&world, lookup_response::Outcome::Unknown(proto::Unknown {}));
    let approved = settled(proto::OperationKind::Pay, payment(proto::PaymentStatus::Approved), proto::Label::Final);
    closes(&world, close_response::Outcome::Settled(approved));
    becomes(&world, StateName::Completed).await;
}

#[tokio::test]
async fn an_undecided_payment_goes_back_in_doubt_and_is_settled_later() {
    let world = world().await;
    world.idem.strand("k");
    finds(&world, lookup_response::Outcome::Pending(proto::Pending {}));
    becomes(&world, StateName::InDoubt).await;
    // The recovery lease hides it from everybody; then the next look finds it decided.
    let approved = settled(proto::OperationKind::Pay, payment(proto::PaymentStatus::Approved), proto::Label::Final);
    let response = proto::LookupResponse { outcome: Some(lookup_response::Outcome::Settled(approved)) };
    world.orders.always::<proto::LookupRequest, _>("lookup", Ok(response));
    world.idem.expire("k");
    becomes(&world, StateName::Completed).await;
    assert_eq!(world.idem.token("k"), 3);
}

#[tokio::test]
async fn a_key_about_which_nobody_can_be_asked_goes_back_in_doubt() {
    let world = world().await;
    world.idem.strand("k");
    world.orders.always::<proto::LookupRequest, proto::LookupResponse>("lookup", Err(Status::unavailable("away")));
    becomes(&world, StateName::InDoubt).await;
    world.idem.expire("k");
    finds_any(&world, lookup_response::Outcome::Unknown(proto::Unknown {}));
    world.orders.always::<proto::CloseRequest, proto::CloseResponse>("close", Err(Status::unavailable("away")));
    eventually("the second look", || world.orders.calls().contains(&"close")).await;
    becomes(&world, StateName::InDoubt).await;
}

#[tokio::test]
async fn a_backlog_is_settled_whatever_its_size() {
    let world = world().await;
    for number in 0..100 {
        world.idem.strand(&format!("k{number}"));
    }
    finds(&world, lookup_response::Outcome::Unknown(proto::Unknown {}));
    closes(&world, close_response::Outcome::Closed(proto::Closed {}));
    let released = |number| world.idem.state(&format!("k{number}")) == Some(StateName::Released);
    eventually("every key is released", || (0..100).all(released)).await;
}

fn finds_any(world: &World, outcome: lookup_response::Outcome) {
    let response = proto::LookupResponse { outcome: Some(outcome) };
    world.orders.always::<proto::LookupRequest, _>("lookup", Ok(response));
}
