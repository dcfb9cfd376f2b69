//! A replica: the chassis' own server around one RPC that says who calls and who answers.

use axum::{Extension, Router, response::IntoResponse, routing::post};
use chassis::{
    serve::{self, Drained, Listener},
    service_auth::{Caller, ServiceAuth},
    shutdown::{Shutdown, Trigger},
    tasks::Tasks,
    tls::ServerTls,
};
use dial::{Channel, Resolve, Settings};
use futures::future::BoxFuture;
use http::Request;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tonic::{Code, Status, body::Body};
use tower::Service;

pub const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";
pub const RESOLVE: &str = "/idem.v1.AdminService/Resolve";

pub struct Replica {
    pub address: SocketAddr,
    pub calls: Arc<AtomicUsize>,
    trigger: Trigger,
    served: JoinHandle<Drained>,
}

/// Addresses that a test gives and changes.
#[derive(Clone, Default)]
pub struct Named(Arc<Mutex<Vec<SocketAddr>>>);

/// A way to a replica that can be frozen: connections are taken and stay open, and nothing goes through.
pub struct Road {
    pub address: SocketAddr,
    frozen: watch::Sender<bool>,
}

// === impl Replica ===

impl Replica {
    /// Answers at once with this code.
    pub async fn start(auth: &ServiceAuth, tls: Option<ServerTls>, code: Code) -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), auth, tls, code).await
    }

    pub async fn plain() -> Self {
        Self::start(&ServiceAuth::open(), None, Code::Ok).await
    }

    pub async fn start_on(address: SocketAddr, auth: &ServiceAuth, tls: Option<ServerTls>, code: Code) -> Self {
        let listener = chassis::listen::bind(address, "the test", "--listen").unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let answer = move |Extension(caller): Extension<Caller>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let head = [
                ("content-type", "application/grpc".to_owned()),
                ("grpc-status", i32::from(code).to_string()),
                ("caller", caller.service().to_owned()),
                ("replica", address.to_string()),
            ];
            async move { head.into_response() }
        };
        let routes = Router::new().route(RESERVE, post(answer.clone())).route(RESOLVE, post(answer));
        let router = serve::grpc_router(routes.into(), auth, "test");
        let (trigger, shutdown) = Shutdown::new();
        let serving = serve::grpc(Listener::new(listener, tls), router, shutdown, Duration::from_secs(5));
        Self { address, calls, trigger, served: Tasks::new().spawn("replica", serving) }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Drains, and is gone.
    pub async fn stop(self) {
        self.trigger.begin();
        self.served.await.unwrap();
    }
}

/// One call: who the server says that calls and which replica it is, or the refusal.
pub async fn call(channel: &Channel, path: &str, token: Option<&str>) -> Result<(String, SocketAddr), Status> {
    let request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
    let request = token.into_iter().fold(request, |it, token| it.header("authorization", format!("Bearer {token}")));
    let response = channel.clone().call(request.body(Body::empty()).unwrap()).await?;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => {
            let text = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            Ok((text("caller"), text("replica").parse().unwrap()))
        }
    }
}

pub fn channel(named: &Named, connections: usize) -> Channel {
    let settings = Settings { connections, resolver: Arc::new(named.clone()), ..Settings::default() };
    Channel::new("http://replicas.test:7001", settings).unwrap()
}

// === impl Named ===

impl Named {
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let named = Self::default();
        named.set(addresses);
        named
    }

    pub fn set(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        *self.0.lock().unwrap() = addresses.into_iter().collect();
    }
}

impl Resolve for Named {
    fn resolve(&self, _host: String, _port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = self.0.lock().unwrap().clone();
        Box::pin(async move { Ok(found) })
    }

    fn may_change(&self, _host: &str) -> bool {
        true
    }
}

// === impl Road ===

impl Road {
    pub async fn to(replica: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, state) = watch::channel(false);
        let tasks = Tasks::new();
        let accepting = tasks.clone();
        let accept = async move {
            while let Ok((near, _)) = listener.accept().await {
                let state = state.clone();
                drop(accepting.spawn("road", async move {
                    let far = TcpStream::connect(replica).await.unwrap();
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::join!(carry(near_in, far_out, state.clone()), carry(far_in, near_out, state));
                }));
            }
        };
        drop(tasks.spawn("roads", accept));
        Self { address, frozen }
    }

    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut frozen: watch::Receiver<bool>,
) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
