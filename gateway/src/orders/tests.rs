//! Orders asked for at once leave in one call, and each caller is told what it would have been told alone.

use super::*;
use chassis::tasks::Tasks;
use fake_orders::FakeOrders;
use futures::future::join_all;
use idem_proto::orders::v1::place_orders_outcome::Outcome;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_types::ErrorDetails;

/// The scripted service of the tests from outside.
#[path = "../../tests/api/fake_orders.rs"]
#[allow(dead_code, reason = "those tests use the rest of it")]
mod fake_orders;

const LIMIT: Duration = Duration::from_secs(20);

async fn world() -> (Orders, FakeOrders) {
    let fake = FakeOrders::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = tonic::transport::Server::builder().add_service(fake.server());
    drop(Tasks::new().spawn("orders", server.serve_with_incoming(TcpListenerStream::new(listener))));
    (Orders::new(&endpoint, None, None, LIMIT).unwrap(), fake)
}

/// An order that is known by its quantity.
fn order(quantity: u32) -> proto::PlaceOrderRequest {
    let items = vec![proto::PlaceOrderItem { ticket_type_id: "general".into(), quantity }];
    proto::PlaceOrderRequest { operation: None, venue_id: "demo".into(), items }
}

/// Asks for orders at once: none has left when the last has come.
async fn place(orders: &Orders, quantities: &[u32]) -> Vec<Result<Option<proto::Answer>, CallError>> {
    let asked = quantities.iter().map(|quantity| orders.place_order(order(*quantity), Deadline::after(LIMIT)));
    join_all(asked).await
}

fn quantity(order: &proto::PlaceOrderRequest) -> u32 {
    order.items[0].quantity
}

/// All that a caller learns; where it came from is no part of it.
fn told(placed: &Result<Option<proto::Answer>, CallError>) -> String {
    let of = |status: &Status| format!("{:?} {} {:?}", status.code(), status.message(), status.details());
    match placed {
        Err(CallError::Unknown(status)) => format!("unknown: {}", of(status)),
        Err(CallError::NothingHappened(status)) => format!("nothing happened: {}", of(status)),
        other => format!("{other:?}"),
    }
}

/// The refusals that a single call knows, by quantity.
fn refusal(quantity: u32) -> Option<Status> {
    let reasoned = |code, reason: &str| {
        let details = ErrorDetails::with_error_info(reason, "orders", std::collections::HashMap::new());
        Some(Status::with_error_details(code, "no", details))
    };
    match quantity {
        2 => reasoned(Code::FailedPrecondition, "STALE_FENCING_TOKEN"),
        3 => reasoned(Code::FailedPrecondition, "OPERATION_REUSED"),
        4 => {
            let details = ErrorDetails::with_bad_request_violation("venue_id", "must be a name");
            Some(Status::with_error_details(Code::InvalidArgument, "no", details))
        }
        5 => reasoned(Code::Unavailable, "STORE_UNAVAILABLE"),
        6 => reasoned(Code::NotFound, "NOT_FOUND"),
        7 => reasoned(Code::PermissionDenied, "SCOPE_NOT_GRANTED"),
        8 => Some(Status::internal("broken")),
        _ => None,
    }
}

fn placed(quantity: u32) -> proto::PlaceOrderResponse {
    let refusal = proto::Refusal { detail: quantity.to_string(), ..Default::default() };
    let kind = Some(proto::result::Kind::Refusal(refusal));
    let result = Some(proto::Result { kind, ..Default::default() });
    proto::PlaceOrderResponse { answer: Some(proto::Answer { result, ..Default::default() }) }
}

fn answers_alone(fake: &FakeOrders) {
    fake.on("place_order", |request: proto::PlaceOrderRequest| async move {
        refusal(quantity(&request)).map_or_else(|| Ok(placed(quantity(&request))), Err)
    });
}

fn answers_together(fake: &FakeOrders) {
    fake.on("place_orders", |request: proto::PlaceOrdersRequest| async move {
        let outcome = |item: &proto::PlaceOrdersItem| {
            assert!(item.timeout.is_some_and(|timeout| timeout.seconds < 20), "each tells how long it waits");
            let quantity = quantity(item.order.as_ref().unwrap());
            let outcome = match refusal(quantity) {
                None => Outcome::Response(placed(quantity)),
                Some(status) => Outcome::Failure(proto::Failure {
                    code: status.code().into(),
                    message: status.message().into(),
                    details: status.details().to_vec().into(),
                    ..Default::default()
                }),
            };
            proto::PlaceOrdersOutcome { outcome: Some(outcome) }
        };
        Ok(proto::PlaceOrdersResponse { outcomes: request.items.iter().map(outcome).collect() })
    });
}

#[tokio::test]
async fn each_order_of_a_call_ends_as_it_would_alone() {
    let (orders, fake) = world().await;
    answers_alone(&fake);
    answers_together(&fake);
    let quantities: Vec<u32> = (1..=9).collect();
    let mut alone = Vec::new();
    for quantity in &quantities {
        alone.extend(place(&orders, &[*quantity]).await);
    }
    assert_eq!(fake.calls(), ["place_order"; 9], "who is alone calls alone");
    let together = place(&orders, &quantities).await;
    assert_eq!(fake.calls()[9..], ["place_orders"]);
    for ((alone, together), quantity) in alone.iter().zip(&together).zip(&quantities) {
        assert_eq!(told(alone), told(together), "{quantity}");
    }
    assert_eq!(together[8].as_ref().unwrap(), &placed(9).answer);
}

#[tokio::test]
async fn an_older_orders_service_is_asked_one_by_one() {
    let (orders, fake) = world().await;
    answers_alone(&fake);
    let unknown = Status::unimplemented("a later release");
    fake.always::<proto::PlaceOrdersRequest, proto::PlaceOrdersResponse>("place_orders", Err(unknown));
    let placed_all = place(&orders, &[1, 2, 10]).await;
    assert_eq!(placed_all[0].as_ref().unwrap(), &placed(1).answer);
    assert!(matches!(placed_all[1], Err(CallError::Fenced)));
    assert_eq!(placed_all[2].as_ref().unwrap(), &placed(10).answer);
    assert_eq!(fake.calls(), ["place_orders", "place_order", "place_order", "place_order"]);
}

#[tokio::test]
async fn a_call_that_fails_fails_for_all_aboard() {
    let (orders, fake) = world().await;
    let away = Status::unavailable("the store is away");
    fake.always::<proto::PlaceOrdersRequest, proto::PlaceOrdersResponse>("place_orders", Err(away));
    let placed = place(&orders, &[1, 2, 3]).await;
    assert!(placed.iter().all(|placed| matches!(placed, Err(CallError::Unknown(_)))), "{placed:?}");

    let nobody = free_port::one().unwrap();
    let orders = Orders::new(&format!("http://{nobody}").parse().unwrap(), None, None, LIMIT).unwrap();
    let placed = place(&orders, &[1, 2, 3]).await;
    assert!(placed.iter().all(|placed| matches!(placed, Err(CallError::NothingHappened(_)))), "{placed:?}");
}

#[tokio::test]
async fn an_answer_that_leaves_one_out_is_unknown_to_all() {
    let (orders, fake) = world().await;
    let short = proto::PlaceOrdersResponse { outcomes: vec![proto::PlaceOrdersOutcome::default()] };
    fake.always::<proto::PlaceOrdersRequest, _>("place_orders", Ok(short));
    let placed = place(&orders, &[1, 2]).await;
    assert!(placed.iter().all(|placed| matches!(placed, Err(CallError::Unknown(_)))), "{placed:?}");
}

#[tokio::test]
async fn an_order_past_its_deadline_does_not_leave_with_the_others() {
    let (orders, fake) = world().await;
    answers_together(&fake);
    let (late, on_time) = tokio::join!(orders.place_order(order(11), Deadline::after(Duration::ZERO)), async {
        place(&orders, &[1, 9]).await
    },);
    assert!(matches!(late, Err(CallError::NothingHappened(_))), "{late:?}");
    assert!(on_time.iter().all(Result::is_ok), "{on_time:?}");
    assert_eq!(fake.calls(), ["place_orders"]);
}

#[tokio::test]
async fn calls_that_are_stuck_step_aside_for_those_behind_them() {
    let (orders, fake) = world().await;
    fake.on("place_order", |request: proto::PlaceOrderRequest| async move {
        match quantity(&request) {
            1 => std::future::pending().await,
            quantity => Ok(placed(quantity)),
        }
    });
    let tasks = Tasks::new();
    for stuck in 1..=2 {
        let orders = orders.clone();
        drop(tasks.spawn("stuck", async move { place(&orders, &[1]).await }));
        while fake.calls().len() < stuck {
            tokio::task::yield_now().await;
        }
    }
    // Every flight of the lane is out, and neither comes back before its deadline.
    assert_eq!(place(&orders, &[9]).await[0].as_ref().unwrap(), &placed(9).answer);
    assert_eq!(tasks.len(), 2);
}
