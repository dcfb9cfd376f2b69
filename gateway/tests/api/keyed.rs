//! Keyed and unkeyed mutations, and what becomes of them when the orders service answers, refuses, or says nothing.

use crate::world::{World, eventually, nobody, send};
use idem_core::StateName;
use idem_proto::orders::v1::{self as proto, result::Kind};
use std::{future::pending, time::Duration};
use tokio::sync::mpsc;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

const ORDER: &str = r#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":2}]}"#;
const PAYMENT: &str = r#"{"orderId":"7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11","paymentMethod":"pm_approved"}"#;
const CANCEL: &str = "/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11/cancel";

pub fn answer(operation: proto::OperationKind, kind: Kind, label: proto::Label) -> Option<proto::Answer> {
    let result = Some(proto::Result { operation: operation.into(), kind: Some(kind) });
    Some(proto::Answer { label: label.into(), result, replayed: false })
}

pub fn refusal(reason: proto::RefusalReason) -> Kind {
    Kind::Refusal(proto::Refusal { reason: reason.into(), detail: "one sentence".to_owned() })
}

pub fn order(status: proto::OrderStatus) -> proto::Order {
    proto::Order {
        id: "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11".to_owned(),
        status: status.into(),
        venue_id: "demo".to_owned(),
        total: Some(proto::Money { amount: 2000, currency: "EUR".to_owned() }),
        created_at: Some(Default::default()),
        hold_expires_at: Some(Default::default()),
        ..Default::default()
    }
}

pub fn payment(status: proto::PaymentStatus) -> Kind {
    Kind::Payment(proto::Payment {
        id: "f3a1f5f4-0c0e-5c9a-8f53-1b1f4f6f2c42".to_owned(),
        order_id: "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11".to_owned(),
        status: status.into(),
        amount: Some(proto::Money { amount: 2000, currency: "EUR".to_owned() }),
    })
}

pub fn placed() -> Option<proto::Answer> {
    let kind = Kind::Order(order(proto::OrderStatus::Pending));
    answer(proto::OperationKind::PlaceOrder, kind, proto::Label::Final)
}

pub fn places(world: &World) {
    let response = proto::PlaceOrderResponse { answer: placed() };
    world.orders.always::<proto::PlaceOrderRequest, _>("place_order", Ok(response));
}

fn pays(world: &World, kind: Kind, label: proto::Label) {
    let response = proto::PayResponse { answer: answer(proto::OperationKind::Pay, kind, label) };
    world.orders.always::<proto::PayRequest, _>("pay", Ok(response));
}

fn looks_up(world: &World, outcome: proto::lookup_response::Outcome) {
    let response = proto::LookupResponse { outcome: Some(outcome) };
    world.orders.always::<proto::LookupRequest, _>("lookup", Ok(response));
}

#[tokio::test]
async fn an_order_is_placed_once_and_replayed_byte_for_byte() {
    let world = World::start().await;
    let (asked, mut requests) = mpsc::unbounded_channel();
    world.orders.on("place_order", move |request: proto::PlaceOrderRequest| {
        asked.send(request).unwrap();
        async { Ok(proto::PlaceOrderResponse { answer: placed() }) }
    });
    let first = send(world.post("/v1/orders", "k", ORDER)).await;
    assert_eq!(
        (first.status, first.header("location")),
        (201, Some("/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11"))
    );
    assert_eq!((first.header("idempotency-key"), first.header("idempotent-replayed")), (Some("k"), None));
    assert!(first.header("idempotency-key-expires").is_some());

    let request = requests.recv().await.unwrap();
    let operation = request.operation.unwrap();
    assert_eq!((operation.tenant.as_str(), operation.fencing_token), ("a", 1));
    assert_eq!((request.venue_id.as_str(), request.items[0].quantity), ("demo", 2));
    let metadata = world.orders.metadata();
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer st_1");
    assert!(metadata.get("grpc-timeout").is_some());

    let same = r#"{"items": [{"quantity": 2e0, "ticketTypeId": "gener\u0061l"}], "venueId": "demo"}"#;
    let again = send(world.post("/v1/orders", "\"k\"", same)).await;
    assert_eq!((again.status, &again.text, again.header("location")), (201, &first.text, first.header("location")));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = send(world.post("/v1/orders", "k", &ORDER.replace('2', "3"))).await;
    assert_eq!(other.problem(), "422 idempotency_key_reuse");
    assert_eq!(world.orders.calls(), ["place_order"]);
}

#[tokio::test]
async fn a_refusal_is_told_and_the_key_is_free_again() {
    let world = World::start().await;
    let kind = refusal(proto::RefusalReason::SoldOut);
    let response =
        proto::PlaceOrderResponse { answer: answer(proto::OperationKind::PlaceOrder, kind, proto::Label::NoEffect) };
    world.orders.always::<proto::PlaceOrderRequest, _>("place_order", Ok(response));
    assert_eq!(send(world.post("/v1/orders", "k", ORDER)).await.problem(), "409 sold_out");
    assert_eq!(world.idem.state("k"), Some(StateName::Released));
    places(&world);
    assert_eq!(send(world.post("/v1/orders", "k", ORDER)).await.status, 201);
}

#[tokio::test]
async fn a_decline_is_final_and_a_pending_payment_is_not() {
    let world = World::start().await;
    pays(&world, refusal(proto::RefusalReason::PaymentDeclined), proto::Label::Final);
    let declined = send(world.post("/v1/payments", "k1", PAYMENT)).await;
    let replayed = send(world.post("/v1/payments", "k1", PAYMENT)).await;
    assert_eq!((declined.problem().as_str(), &declined.text), ("402 payment_declined", &replayed.text));
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));

    pays(&world, payment(proto::PaymentStatus::Pending), proto::Label::Unknown);
    let pending = send(world.post("/v1/payments", "k2", PAYMENT)).await;
    assert_eq!((pending.status, pending.header("retry-after")), (202, Some("5")));
    assert_eq!(pending.json()["status"], "pending");
    assert_eq!(world.idem.state("k2"), Some(StateName::InDoubt));
    looks_up(&world, proto::lookup_response::Outcome::Pending(proto::Pending {}));
    let undecided = send(world.post("/v1/payments", "k2", PAYMENT)).await;
    assert_eq!(
        (undecided.problem().as_str(), undecided.header("retry-after")),
        ("409 conflict/outcome_pending", Some("5"))
    );

    let result = Some(proto::Result {
        operation: proto::OperationKind::Pay.into(),
        kind: Some(payment(proto::PaymentStatus::Approved)),
    });
    let settled = proto::Settled { result, label: proto::Label::Final.into() };
    looks_up(&world, proto::lookup_response::Outcome::Settled(settled));
    let approved = send(world.post("/v1/payments", "k2", PAYMENT)).await;
    assert_eq!((approved.status, approved.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(world.idem.state("k2"), Some(StateName::Completed));
}

#[tokio::test]
async fn nothing_happened_when_nobody_listens_and_the_key_is_free() {
    let orders = nobody().await;
    let world = World::start_with(|config| config.orders_endpoint = orders).await;
    let answer = send(world.post("/v1/orders", "k", ORDER)).await;
    assert_eq!(answer.problem(), "503 upstream_unavailable/nothing_happened");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(world.idem.state("k"), Some(StateName::Released));
    assert_eq!(
        world.get("/v1/orders/7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11").await.problem(),
        "503 upstream_unavailable/nothing_happened"
    );
}

#[tokio::test]
async fn a_failure_after_sending_is_in_doubt_until_somebody_asks() {
    let world = World::start().await;
    world.orders.always::<proto::PayRequest, proto::PayResponse>("pay", Err(Status::unavailable("the store is away")));
    world.orders.always::<proto::LookupRequest, proto::LookupResponse>("lookup", Err(Status::unavailable("away")));
    assert_eq!(send(world.post("/v1/payments", "k", PAYMENT)).await.problem(), "503 upstream_unavailable/in_doubt");
    assert_eq!(world.idem.state("k"), Some(StateName::InDoubt));
    // Unknown everywhere: it is executed under the token that fenced the first try.
    looks_up(&world, proto::lookup_response::Outcome::Unknown(proto::Unknown {}));
    pays(&world, payment(proto::PaymentStatus::Approved), proto::Label::Final);
    let paid = send(world.post("/v1/payments", "k", PAYMENT)).await;
    assert_eq!((paid.status, paid.header("idempotent-replayed")), (201, None));
    assert_eq!(world.orders.calls(), ["pay", "lookup", "lookup", "pay"]);
    assert_eq!(world.idem.token("k"), 2);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_in_doubt() {
    let world = World::start_with(|config| config.upstream_timeout = Duration::from_millis(300)).await;
    world.orders.on("pay", |_: proto::PayRequest| pending::<Result<proto::PayResponse, Status>>());
    assert_eq!(send(world.post("/v1/payments", "k", PAYMENT)).await.problem(), "503 upstream_unavailable/in_doubt");
    assert_eq!(world.idem.state("k"), Some(StateName::InDoubt));
}

#[tokio::test]
async fn a_fenced_holder_gives_the_answer_of_whoever_took_over() {
    let world = World::start().await;
    let fenced = || {
        let reason = proto::ErrorReason::StaleFencingToken.as_str_name();
        let details = ErrorDetails::with_error_info(reason, "orders", std::collections::HashMap::new());
        Status::with_error_details(tonic::Code::FailedPrecondition, "a higher token was seen", details)
    };
    let idem = world.idem.clone();
    world.orders.on("pay", move |_: proto::PayRequest| {
        idem.complete_elsewhere("k", 201, "{\"by\":\"another\"}");
        async move { Err::<proto::PayResponse, _>(fenced()) }
    });
    world.orders.always::<proto::LookupRequest, proto::LookupResponse>("lookup", Err(fenced()));
    let answer = send(world.post("/v1/payments", "k", PAYMENT)).await;
    assert_eq!((answer.status, answer.text.as_str()), (201, "{\"by\":\"another\"}"));
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn without_a_key_an_optional_route_carries_no_grant() {
    let world = World::start().await;
    world.orders.on("cancel_order", |request: proto::CancelOrderRequest| async move {
        let operation = request.operation.unwrap();
        assert_eq!((operation.operation_id.as_str(), operation.fencing_token, operation.tenant.as_str()), ("", 0, "a"));
        let kind = Kind::Order(order(proto::OrderStatus::Cancelled));
        Ok(proto::CancelOrderResponse { answer: answer(proto::OperationKind::CancelOrder, kind, proto::Label::Final) })
    });
    let answer = send(world.request("POST", CANCEL)).await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("cancelled")));
    assert_eq!((answer.header("idempotency-key"), answer.header("idempotency-key-expires")), (None, None));
    // A key on a route that takes none changes nothing.
    let link = proto::PaymentLink { url: "https://pay.example/x".to_owned(), expires_at: Some(Default::default()) };
    let outcome = Some(proto::create_payment_link_response::Outcome::Link(link));
    world.orders.always::<proto::CreatePaymentLinkRequest, _>(
        "create_payment_link",
        Ok(proto::CreatePaymentLinkResponse { outcome }),
    );
    let answer = send(world.post(&CANCEL.replace("cancel", "payment-link"), "k", "{}")).await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (200, r#"{"url":"https://pay.example/x","expiresAt":"1970-01-01T00:00:00.000Z"}"#)
    );
    assert_eq!(world.idem.state("k"), None);
}

#[tokio::test]
async fn a_key_can_be_looked_at_under_its_percent_encoded_name() {
    let world = World::start().await;
    places(&world);
    send(world.post("/v1/orders", "a/b é", ORDER)).await;
    let shown = world.get("/v1/idempotency-keys/a%2Fb%20%C3%A9").await.json();
    assert_eq!(
        (&shown["key"], &shown["state"], &shown["statusCode"]),
        (&"a/b é".into(), &"completed".into(), &201.into())
    );
    assert_eq!((&shown["attempts"], &shown["leaseExpiresAt"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(world.get("/v1/idempotency-keys/a").await.problem(), "404 not_found");
}

#[tokio::test]
async fn the_trace_of_the_caller_goes_on_and_is_named_in_problems() {
    let _telemetry = chassis::telemetry::init("gateway");
    let world = World::start().await;
    places(&world);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced = |key: &str, body: &str| {
        world.post("/v1/orders", key, body).header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
    };
    assert_eq!(send(traced("k", ORDER)).await.status, 201);
    assert!(world.orders.metadata().get("traceparent").unwrap().to_str().unwrap().contains(trace));
    assert_eq!(send(traced("k", "{}")).await.json()["traceId"], trace);
    assert_eq!(send(traced("k", &ORDER.replace('2', "3"))).await.json()["traceId"], trace);
}

#[tokio::test]
async fn webhooks_go_on_as_they_came() {
    use proto::handle_webhook_response::Outcome;
    let world = World::start().await;
    let post = || {
        world.client.post(format!("http://{}/webhooks/acquirer", world.api)).header("acquirer-signature", "t=1,v1=ab")
    };
    let says = |outcome| {
        world.orders.on("handle_webhook", move |request: proto::HandleWebhookRequest| async move {
            assert_eq!((&request.body[..], request.signature.as_str()), (&b"{ \"raw\" : 1.0 }\xff"[..], "t=1,v1=ab"));
            Ok(proto::HandleWebhookResponse { outcome: Some(outcome) })
        });
    };
    let rejected =
        |reason: proto::WebhookRejection| Outcome::Rejected(proto::WebhookRejected { reason: reason.into() });
    let body = || b"{ \"raw\" : 1.0 }\xff".to_vec();
    says(Outcome::Accepted(proto::WebhookAccepted { duplicate: true }));
    let accepted = send(post().body(body())).await;
    assert_eq!((accepted.status, accepted.text.as_str()), (200, r#"{"duplicate":true}"#));
    says(rejected(proto::WebhookRejection::Malformed));
    assert_eq!(send(post().body(body())).await.problem(), "400 invalid_request");
    says(rejected(proto::WebhookRejection::BadSignature));
    assert_eq!(send(post().body(body())).await.problem(), "401 unauthorized");
    says(rejected(proto::WebhookRejection::TooOld));
    assert_eq!(send(post().body(body())).await.problem(), "401 unauthorized");
}

#[tokio::test]
async fn a_drain_finishes_what_is_running_and_ready_says_no() {
    let world = World::start().await;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let (release, _) = tokio::sync::broadcast::channel::<()>(1);
    let gate = release.clone();
    world.orders.on("place_order", move |_: proto::PlaceOrderRequest| {
        let mut released = gate.subscribe();
        arrived.send(()).unwrap();
        async move {
            released.recv().await.unwrap();
            Ok(proto::PlaceOrderResponse { answer: placed() })
        }
    });
    let admin = |path: &str| world.client.get(format!("http://{}{path}", world.admin));
    assert_eq!(send(admin("/healthz")).await.status, 200);
    assert_eq!(send(admin("/readyz")).await.status, 200);
    let answered = world.tasks.spawn("client", send(world.post("/v1/orders", "k1", ORDER)));
    let gone = world.tasks.spawn("client that leaves", send(world.post("/v1/orders", "k2", ORDER)));
    arrivals.recv().await.unwrap();
    arrivals.recv().await.unwrap();
    gone.abort();
    world.trigger.begin();
    assert_eq!(send(admin("/readyz")).await.status, 503);
    release.send(()).unwrap();
    assert_eq!(answered.await.unwrap().status, 201);
    eventually("the answer for nobody is stored", || world.idem.state("k2") == Some(StateName::Completed)).await;
}
