//! A real gateway between services that only count: whatever it refuses by itself must not have been asked of anybody.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response};
use chassis::{
    serve,
    shutdown::{Shutdown, Trigger},
    tasks::Tasks,
};
use gateway::{ApiKeyEntry, ApiKeySecret, ApiKeys, Config, Gateway};
use tokio::net::TcpListener;

/// The reconciler asks by itself, and every new connection whether anybody is there, whatever clients send.
const OF_NO_CLIENT: [&str; 2] = ["/idem.v1.AdminService/ListStale", "/grpc.health.v1.Health/Check"];

/// A gateway, and how often it asked somebody.
pub struct Edge {
    /// Where the REST API is.
    pub api: SocketAddr,
    calls: Arc<AtomicUsize>,
    _running: (Tasks, Trigger),
}

impl Edge {
    /// Starts one that knows the API key `sk_a`. Both services behind it answer UNAVAILABLE.
    pub async fn start() -> Self {
        let (tasks, calls, (trigger, shutdown)) = (Tasks::new(), Arc::new(AtomicUsize::new(0)), Shutdown::new());
        let mut endpoints = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            endpoints.push(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
            let router = counting(calls.clone());
            drop(tasks.spawn("counting service", serve::grpc(listener, router, shutdown.clone(), Duration::ZERO)));
        }
        let entry = ApiKeyEntry {
            tenant: "a".to_owned(),
            secret: ApiKeySecret::Key("sk_a".to_owned()),
            operator: false,
            expires_at: None,
        };
        let keys = ApiKeys::from_entries([entry]).unwrap();
        let gateway = Gateway::bind(Config::new(keys, endpoints.remove(0), endpoints.remove(0))).unwrap();
        let api = gateway.local_addr().unwrap();
        drop(tasks.spawn("gateway", async move { gateway.serve(shutdown).await }));
        Self { api, calls, _running: (tasks, trigger) }
    }

    /// How often the gateway asked one of the services on behalf of a client.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn counting(calls: Arc<AtomicUsize>) -> Router {
    Router::new().fallback(move |request: Request| {
        if !OF_NO_CLIENT.contains(&request.uri().path()) {
            calls.fetch_add(1, Ordering::SeqCst);
        }
        async {
            let unavailable =
                Response::builder().header("content-type", "application/grpc").header("grpc-status", "14");
            unavailable.body(Body::empty()).unwrap()
        }
    })
}
