//! Real sockets on loopback. Time is paused and jumps to the next timer when nothing else can happen, so that limits of
//! seconds are met in milliseconds.

use super::*;
use crate::shutdown::Trigger;
use axum::routing::get;
use h2::client::SendRequest;
use http::Request;
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
    task::JoinHandle,
    time::Instant,
};

const DRAIN: Duration = Duration::from_secs(30);

struct Server {
    addr: SocketAddr,
    trigger: Trigger,
    /// A permit lets one request of `/gate` go.
    gate: Arc<Semaphore>,
    /// A permit for each request that has arrived at `/gate`.
    arrived: Arc<Semaphore>,
    done: JoinHandle<Drained>,
}

impl Server {
    fn start() -> Self {
        let (gate, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (open, seen) = (gate.clone(), arrived.clone());
        let handler = move || async move {
            seen.add_permits(1);
            open.acquire().await.unwrap().forget();
            "through"
        };
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/gate", get(handler))
            .route("/hang-up", get(|| async { axum::Extension(HangUp) }));
        let listener = crate::listen::bind("127.0.0.1:0".parse().unwrap(), "the test", "--listen").unwrap();
        let addr = listener.local_addr().unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let done = Tasks::new().spawn("server", http(listener, router, shutdown, DRAIN));
        Self { addr, trigger, gate, arrived, done }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn connect_h2(&self) -> (SendRequest<bytes::Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let (client, connection) = h2::client::handshake(self.connect().await).await.unwrap();
        (client, Tasks::new().spawn("h2 client", connection))
    }

    async fn wait_until_arrived(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }
}

async fn send(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads one answer whose body is `body`.
async fn answer(stream: &mut TcpStream, body: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(body.as_bytes()) {
        assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "closed after {:?}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]).await, Ok(0) | Err(_))
}

#[tokio::test(start_paused = true)]
async fn request_in_flight_is_answered_and_the_connection_closed() {
    let server = Server::start();
    let (mut busy, mut idle) = (server.connect().await, server.connect().await);
    send(&mut idle, "/").await;
    assert!(!answer(&mut idle, "hello").await.contains("connection: close"));
    send(&mut busy, "/gate").await;
    server.wait_until_arrived().await;
    server.trigger.begin();
    assert!(is_closed(&mut idle).await);
    server.gate.add_permits(1);
    let head = answer(&mut busy, "through").await;
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("connection: close"), "{head}");
    assert!(is_closed(&mut busy).await);
    assert_eq!(server.done.await.unwrap(), Drained { in_time: true });
    assert!(TcpStream::connect(server.addr).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn announced_end_asks_clients_to_go_while_everybody_is_served() {
    let server = Server::start();
    server.trigger.leave();
    let mut stream = server.connect().await;
    send(&mut stream, "/").await;
    assert!(answer(&mut stream, "hello").await.contains("connection: close"));
    assert!(is_closed(&mut stream).await);
    let mut another = server.connect().await;
    send(&mut another, "/").await;
    answer(&mut another, "hello").await;
}

#[tokio::test(start_paused = true)]
async fn request_that_was_sent_before_the_drain_is_answered() {
    let server = Server::start();
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
        std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        stream.set_nonblocking(true).unwrap();
        streams.push(TcpStream::from_std(stream).unwrap());
    }
    server.trigger.begin();
    for mut stream in streams {
        assert!(answer(&mut stream, "hello").await.starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(server.done.await.unwrap(), Drained { in_time: true });
}

#[tokio::test(start_paused = true)]
async fn http2_request_in_flight_is_answered_and_the_client_told_to_go() {
    let server = Server::start();
    let (mut client, connection) = server.connect_h2().await;
    let request = |path: &str| Request::get(format!("http://test{path}")).body(()).unwrap();
    let (response, _) = client.send_request(request("/gate"), true).unwrap();
    server.wait_until_arrived().await;
    server.trigger.begin();
    server.gate.add_permits(1);
    assert_eq!(response.await.unwrap().status(), 200);
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(server.done.await.unwrap(), Drained { in_time: true });
}

#[tokio::test(start_paused = true)]
async fn idle_half_open_and_stalled_peers_hold_the_drain_no_longer_than_its_time() {
    let server = Server::start();
    let mut peers = Vec::new();
    for begun in [
        "",
        "GET / HT",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0",
    ] {
        for _ in 0..5 {
            let mut peer = server.connect().await;
            peer.write_all(begun.as_bytes()).await.unwrap();
            peers.push(peer);
        }
    }
    // A request on its own: what arrived before it has been read.
    let mut other = server.connect().await;
    send(&mut other, "/").await;
    answer(&mut other, "hello").await;
    let begun = Instant::now();
    server.trigger.begin();
    assert_eq!(server.done.await.unwrap(), Drained { in_time: true });
    assert!(begun.elapsed() <= DRAIN + Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(peers);
}

#[tokio::test(start_paused = true)]
async fn endless_requests_are_cut_when_the_drain_time_is_over() {
    for over_h2 in [false, true] {
        let server = Server::start();
        let mut http1 = server.connect().await;
        let (mut http2, _connection) = server.connect_h2().await;
        let endless = if over_h2 {
            Some(http2.send_request(Request::get("http://test/gate").body(()).unwrap(), true).unwrap())
        } else {
            send(&mut http1, "/gate").await;
            None
        };
        server.wait_until_arrived().await;
        let begun = Instant::now();
        server.trigger.begin();
        assert_eq!(server.done.await.unwrap(), Drained { in_time: false });
        assert!((DRAIN..DRAIN + Duration::from_secs(1)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        drop(endless);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_head_is_cut_off_after_ten_seconds_but_an_idle_connection_lives_on() {
    let server = Server::start();
    for begun in ["", "G", "GET / HTTP/1.1\r\nhost: te", "PRI * HT"] {
        let mut slow = server.connect().await;
        slow.write_all(begun.as_bytes()).await.unwrap();
        let waiting = Instant::now();
        assert!(is_closed(&mut slow).await, "{begun:?}");
        let waited = waiting.elapsed();
        assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(11), "{begun:?}: {waited:?}");
    }
    let mut idle = server.connect().await;
    for _ in 0..3 {
        send(&mut idle, "/").await;
        answer(&mut idle, "hello").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    // The second head on a connection is watched as the first is.
    idle.write_all(b"GET / HT").await.unwrap();
    let waiting = Instant::now();
    assert!(is_closed(&mut idle).await);
    assert!(waiting.elapsed() < Duration::from_secs(11), "{:?}", waiting.elapsed());
}

#[tokio::test(start_paused = true)]
async fn slow_answer_is_not_taken_for_a_slow_head() {
    let server = Server::start();
    let mut stream = server.connect().await;
    send(&mut stream, "/gate").await;
    server.wait_until_arrived().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.gate.add_permits(1);
    answer(&mut stream, "through").await;
}

#[tokio::test(start_paused = true)]
async fn handler_that_hangs_up_sends_no_byte_and_is_not_in_flight_any_more() {
    let server = Server::start();
    let mut stream = server.connect().await;
    send(&mut stream, "/hang-up").await;
    assert!(is_closed(&mut stream).await);
    let (mut client, connection) = server.connect_h2().await;
    let (response, _) = client.send_request(Request::get("http://test/hang-up").body(()).unwrap(), true).unwrap();
    assert!(response.await.unwrap_err().is_reset());
    server.trigger.begin();
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(server.done.await.unwrap(), Drained { in_time: true });
}

#[tokio::test]
async fn grpc_router_asks_who_calls_before_it_looks_at_anything_else() {
    use tonic::{Code, Status};
    use tower::ServiceExt;
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), r#"[{"service": "a", "token": "t", "scopes": [], "rpcs": ["*"]}]"#).unwrap();
    let auth = ServiceAuth::load(tokens.path()).unwrap();
    let table = [
        (None, "0n", Code::Unauthenticated),
        (Some("Bearer t"), "0n", Code::DeadlineExceeded),
        (Some("Bearer t"), "9S", Code::Unimplemented),
    ];
    for (authorization, timeout, expected) in table {
        let mut request =
            Request::post("/a.v1.B/C").header("content-type", "application/grpc").header("grpc-timeout", timeout);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let router = grpc_router(Routes::default(), &auth, "a");
        let response = router.oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        assert_eq!(
            Status::from_header_map(response.headers()).unwrap().code(),
            expected,
            "{authorization:?} {timeout}"
        );
    }
}

/// `POST path` of 600,000 bytes, of which the second half is sent only after the answer has begun.
async fn post_large(server: &Server, path: &str) -> (String, TcpStream) {
    let mut stream = server.connect().await;
    let half = vec![b'x'; 300_000];
    let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 600000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&half).await.unwrap();
    let told = answer(&mut stream, "\r\n\r\n").await;
    // It fails when the server has closed, which is what a client would see instead of the answer.
    let _ = stream.write_all(&half).await;
    (told, stream)
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending_and_the_connection_lives_on() {
    let server = Server::start();
    for path in ["/", "/nowhere"] {
        let (told, mut stream) = post_large(&server, path).await;
        assert!(told.starts_with("HTTP/1.1 40"), "{told}");
        send(&mut stream, "/").await;
        answer(&mut stream, "hello").await;
    }
}

#[tokio::test]
async fn who_asked_before_sending_is_not_asked_to_send_what_nobody_reads() {
    let server = Server::start();
    let mut stream = server.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 600000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 405") && !told.contains("100 Continue"), "{told}");
}
