//! SIGTERM while thirty peers hold connections and say no more: each program answers the request that is really there, and is gone
//! with 0 within its drain time.

use std::{future::Future, net::SocketAddr, time::Duration};

use chassis::tasks::Tasks;
use e2e::{API_KEY, OPERATOR_KEY, Role, Site, eventually};
use idem_proto::{
    idem::v1::{ReserveRequest, idempotency_service_client::IdempotencyServiceClient, reserve_response},
    orders::v1::{Label, Operation, PayRequest, orders_service_client::OrdersServiceClient, result::Kind},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// Longer than the real request takes, shorter than a stalled peer may stall.
const DRAIN: Duration = Duration::from_secs(3);

/// How long the real request takes: it is on its way when the signal comes, and answered after it.
const SLOW: &str = "pm_slow_1000";

/// What is sent before a peer falls silent. The last two are requests in the middle of their head and of their body.
const STALLS: [&str; 3] = [
    "",
    "POST /v1/orders HTTP/1.1\r\nhost: x\r\nidempo",
    "POST /v1/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk_demo_a\r\nidempotency-key: half\r\n\
     content-type: application/json\r\ncontent-length: 100\r\n\r\n{\"venueId\":",
];

/// Ten half-open sockets, ten half-sent requests and ten stalled HTTP/2 clients.
struct Peers {
    _sockets: Vec<TcpStream>,
    tasks: Tasks,
}

impl Peers {
    async fn stall(at: SocketAddr, path: &'static str) -> Self {
        let (mut sockets, tasks) = (Vec::new(), Tasks::new());
        for n in 0..20 {
            let mut socket = TcpStream::connect(at).await.unwrap();
            let begun = if n < 10 { STALLS[0] } else { STALLS[1 + n % 2] };
            socket.write_all(begun.as_bytes()).await.unwrap();
            sockets.push(socket);
        }
        for _ in 0..5 {
            let mut socket = TcpStream::connect(at).await.unwrap();
            // The preface and empty settings; then not even an acknowledgement.
            socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
            // Its settings have come, so it was taken for HTTP/2.
            socket.read_exact(&mut [0; 9]).await.unwrap();
            sockets.push(socket);
        }
        for _ in 0..5 {
            drop(tasks.spawn("no window", without_a_window(at, path)));
        }
        Self { _sockets: sockets, tasks }
    }
}

/// Asks for something and gives no window for its body.
async fn without_a_window(at: SocketAddr, path: &'static str) {
    let stream = TcpStream::connect(at).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (mut client, connection) = builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
    drop(Tasks::new().spawn("h2 client", connection));
    let request = http::Request::post(format!("http://{at}{path}")).header("content-type", "application/grpc");
    let (answer, mut body) = client.send_request(request.header("te", "trailers").body(()).unwrap(), false).unwrap();
    // An empty message; what it gets for an answer does not matter, for it cannot be sent.
    drop(body.send_data(bytes::Bytes::from_static(&[0; 5]), true));
    let _answer = answer.await;
    // Until the connection is cut, or the test is over.
    std::future::pending::<()>().await;
}

/// Signals the program in the middle of `request`, which must be answered, and judges how it ends.
async fn leave<T>(
    site: &mut [(Role, e2e::Process)],
    role: Role,
    at: SocketAddr,
    path: &'static str,
    request: impl Future<Output = T>,
    is_under_way: impl Future<Output = ()>,
) -> T {
    let peers = Peers::stall(at, path).await;
    let leaving = async {
        is_under_way.await;
        let (_, process) = site.iter_mut().find(|(known, _)| *known == role).unwrap();
        let signalled = Instant::now();
        process.signal("TERM");
        let status = process.until_ended().await;
        (status, signalled.elapsed())
    };
    let (answer, (status, took)) = tokio::join!(request, leaving);
    assert_eq!(status.code(), Some(0), "{role:?}");
    assert!(took <= DRAIN + Duration::from_secs(1), "{role:?} took {took:?}");
    assert_eq!(peers.tasks.len(), 5, "they stalled to the end");
    answer
}

/// All four, and an order to pay.
async fn open() -> (Site, Vec<(Role, e2e::Process)>, String) {
    let mut site = Site::new().await;
    site.drain = DRAIN;
    let roles = [Role::Sandbox, Role::Orders, Role::Idem, Role::Gateway];
    let processes = roles.map(|role| (role, site.start(role))).into();
    let http = reqwest::Client::new();
    let base = format!("http://{}/v1", site.gateway.listen);
    let put =
        json!({"venueId": "demo", "name": "General", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 100});
    eventually("the ticket type is there", || async {
        let request = http.put(format!("{base}/ticket-types/general")).bearer_auth(OPERATOR_KEY).json(&put);
        request.send().await.ok().filter(|answer| answer.status().is_success()).map(drop)
    })
    .await;
    let order = eventually("an order is placed", || async {
        let body = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]});
        let request = http.post(format!("{base}/orders")).bearer_auth(API_KEY).header("idempotency-key", "order");
        let answer = request.json(&body).send().await.ok().filter(|answer| answer.status() == 201)?;
        Some(answer.json::<Value>().await.ok()?["id"].as_str()?.to_owned())
    })
    .await;
    (site, processes, order)
}

/// The acquirer is at it.
async fn until_a_charge_has_begun(site: &Site) {
    eventually("a payment is recorded", || async {
        (site.database.number("SELECT count(*) FROM payments").await == 1).then_some(())
    })
    .await;
    let id = site.database.texts("SELECT id FROM payments").await.remove(0);
    eventually("the acquirer has heard of it", || async {
        let url = format!("http://{}/sandbox/payments/{id}", site.sandbox);
        reqwest::get(url).await.ok().filter(|answer| answer.status().is_success()).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_leaves_in_time_although_peers_stall_on_postgres() {
    let (site, mut processes, order) = open().await;
    let paying = reqwest::Client::new()
        .post(format!("http://{}/v1/payments", site.gateway.listen))
        .bearer_auth(API_KEY)
        .header("idempotency-key", "payment")
        .json(&json!({"orderId": order, "paymentMethod": SLOW}))
        .send();
    let begun = until_a_charge_has_begun(&site);
    let answer = leave(&mut processes, Role::Gateway, site.gateway.listen, "/openapi.json", paying, begun).await;
    assert_eq!(answer.unwrap().status(), 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orders_service_leaves_in_time_although_peers_stall_on_postgres() {
    let (site, mut processes, order) = open().await;
    let mut client = OrdersServiceClient::connect(format!("http://{}", site.orders.listen)).await.unwrap();
    let operation =
        Operation { tenant: "demo-a".into(), operation_id: uuid::Uuid::new_v4().to_string(), fencing_token: 1 };
    let paying = client.pay(PayRequest { operation: Some(operation), order_id: order, payment_method: SLOW.into() });
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let begun = until_a_charge_has_begun(&site);
    let answer = leave(&mut processes, Role::Orders, site.orders.listen, path, paying, begun).await;
    let answer = answer.unwrap().into_inner().answer.unwrap();
    assert_eq!(answer.label(), Label::Final);
    assert!(matches!(answer.result.unwrap().kind, Some(Kind::Payment(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_service_leaves_in_time_although_peers_stall_on_postgres() {
    let (site, mut processes, _) = open().await;
    let mut client = IdempotencyServiceClient::connect(format!("http://{}", site.idem.listen)).await.unwrap();
    let reserve = |wait: i64| ReserveRequest {
        scope: "rest/demo-a".into(),
        key: "held".into(),
        fingerprint: vec![7; 32].into(),
        attempt_id: uuid::Uuid::new_v4().to_string(),
        wait: Some(prost_types::Duration { seconds: wait, nanos: 0 }),
        ..ReserveRequest::default()
    };
    client.reserve(reserve(0)).await.unwrap();
    let mut another = client.clone();
    let waiting = client.reserve(reserve(2));
    let begun = async {
        // The wait is long, and something that was sent after it has been answered.
        tokio::task::yield_now().await;
        another.reserve(reserve(0)).await.unwrap();
    };
    let path = "/grpc.health.v1.Health/Watch";
    let answer = leave(&mut processes, Role::Idem, site.idem.listen, path, waiting, begun).await;
    let outcome = answer.unwrap().into_inner().outcome.unwrap();
    assert!(matches!(outcome, reserve_response::Outcome::InProgress(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquirer_sandbox_leaves_in_time_although_peers_stall_on_postgres() {
    let (site, mut processes, _) = open().await;
    let id = uuid::Uuid::new_v4();
    let charging = reqwest::Client::new()
        .put(format!("http://{}/payments/{id}", site.sandbox))
        .json(&json!({"amount": 1000, "currency": "EUR", "method": SLOW}))
        .send();
    let begun = async {
        eventually("the charge has begun", || async {
            let url = format!("http://{}/sandbox/payments/{id}", site.sandbox);
            reqwest::get(url).await.ok().filter(|answer| answer.status().is_success()).map(drop)
        })
        .await;
    };
    let answer = leave(&mut processes, Role::Sandbox, site.sandbox, "/sandbox/totals", charging, begun).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    assert_eq!(answer["status"], "approved");
}
