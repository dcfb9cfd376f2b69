//! Who may come in, and what a caller learns when something is wrong.

use std::{io::Write as _, sync::Arc};

use database::testing::sqlite_url;
use idem_proto::orders::v1::{self as proto};
use orders_service::{Config, OrdersService, acquirer::Acquirer};
use tonic::{Code, Request, metadata::MetadataValue};
use tonic_types::StatusExt as _;

use crate::{
    script::Script,
    world::{Intent, Says as _, World, why},
};

fn tokens() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let json = r#"[
        {"service": "gateway", "token": "all", "scopes": ["rest/*"], "rpcs": ["*"]},
        {"service": "kiosk", "token": "one", "scopes": ["rest/demo-a"], "rpcs": ["GetOrder", "PlaceOrder", "Lookup"]}
    ]"#;
    file.write_all(json.as_bytes()).unwrap();
    file
}

fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[tokio::test]
async fn a_service_token_opens_its_rpcs_and_tenants_alone() {
    let file = tokens();
    let config = Config { service_tokens: Some(file.path().to_owned()), ..Config::default() };
    let world = World::with(Arc::new(sqlite_url()), config, Arc::new(Script::new()) as Arc<dyn Acquirer>).await;
    let get = |tenant: &str| proto::GetOrderRequest { tenant: tenant.to_owned(), id: "x".to_owned() };
    let mut client = world.client.clone();
    assert_eq!(client.get_order(get("demo-a")).await.unwrap_err().code(), Code::Unauthenticated);
    for (token, tenant, code) in [
        ("wrong", "demo-a", Code::Unauthenticated),
        ("all", "demo-b", Code::NotFound),
        ("one", "demo-a", Code::NotFound),
        ("one", "demo-b", Code::PermissionDenied),
    ] {
        let status = client.get_order(with_token(token, get(tenant))).await.unwrap_err();
        assert_eq!(status.code(), code, "{token} {tenant}");
    }
    let link = proto::CreatePaymentLinkRequest { tenant: "demo-a".to_owned(), order_id: "x".to_owned() };
    assert_eq!(client.create_payment_link(with_token("one", link)).await.unwrap_err().code(), Code::PermissionDenied);
    // An operation of another tenant cannot be fenced either.
    let intent = Intent { tenant: "demo-b".to_owned(), ..Intent::new() };
    let place = proto::PlaceOrderRequest {
        operation: intent.with(1),
        venue_id: "demo".to_owned(),
        items: vec![proto::PlaceOrderItem { ticket_type_id: "nothing".to_owned(), quantity: 1 }],
    };
    assert_eq!(client.place_order(with_token("one", place.clone())).await.unwrap_err().code(), Code::PermissionDenied);
    client.place_order(with_token("all", place)).await.unwrap();
    let lookup = proto::LookupRequest { operation_id: intent.id, fencing_token: 9, background: false };
    assert_eq!(client.lookup(with_token("one", lookup)).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn bad_input_names_its_field() {
    let world = World::on_sqlite().await;
    let intent = Intent::new();
    let status = world.place(&intent, 1, 0).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let details = status.get_error_details();
    assert_eq!(details.bad_request().unwrap().field_violations[0].field, "items[0].quantity");
    let nobody = Intent { id: "not-a-uuid".to_owned(), ..Intent::new() };
    assert_eq!(why(world.lookup(&nobody, 1).await), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    assert_eq!(why(world.lookup(&intent, 0).await).0, Code::InvalidArgument);
    assert_eq!(why(world.order_of("demo-a", "nothing").await), (Code::NotFound, "NOT_FOUND".to_owned()));
    // What was refused before it began has raised no token and bound nothing.
    world.place(&intent, 1, 2).await.unwrap().order();
}

#[tokio::test]
async fn strangers_are_not_served_by_accident() {
    let store = sqlite_url();
    let config = Config {
        store: store.url().clone(),
        listen: ([0, 0, 0, 0], 0).into(),
        admin_listen: ([127, 0, 0, 1], 0).into(),
        ..Config::default()
    };
    let refused = OrdersService::bind(config, database::Clock::system()).await.err().expect("it must not start");
    assert!(refused.to_string().contains("--service-tokens"), "{refused}");
}

#[tokio::test]
async fn health_reflection_and_admin_pages_are_there() {
    let store = sqlite_url();
    let loopback = || std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let config =
        Config { store: store.url().clone(), listen: loopback(), admin_listen: loopback(), ..Config::default() };
    let service = OrdersService::bind(config, database::Clock::system()).await.unwrap();
    let (grpc, admin) = (service.local_addr().unwrap(), service.admin_addr().unwrap());
    let (trigger, shutdown) = chassis::shutdown::Shutdown::new();
    let serving =
        chassis::tasks::Tasks::new().spawn("orders", service.serve(shutdown, std::time::Duration::from_secs(5)));
    let channel = tonic::transport::Channel::from_shared(format!("http://{grpc}")).unwrap().connect().await.unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
    let request = tonic_health::pb::HealthCheckRequest { service: "orders.v1.OrdersService".to_owned() };
    let status = health.check(request).await.unwrap().into_inner().status();
    assert_eq!(status, tonic_health::pb::health_check_response::ServingStatus::Serving);
    for page in ["healthz", "readyz", "metrics"] {
        let answer = reqwest::get(format!("http://{admin}/{page}")).await.unwrap();
        assert_eq!(answer.status(), 200, "{page}");
    }
    drop((health, channel));
    trigger.begin();
    assert!(serving.await.unwrap().in_time);
}
