//! A gateway over real ports, between a client and the two services as a test scripts them.

use crate::{fake_idem::FakeIdem, fake_orders::FakeOrders};
use chassis::{
    flags::{Endpoint, Secret},
    shutdown::{Shutdown, Trigger},
    tasks::Tasks,
};
use gateway::{ApiKeyEntry, ApiKeySecret, ApiKeys, Config, Gateway};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use std::{
    net::SocketAddr,
    time::{Duration, Instant as WallInstant},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct World {
    pub orders: FakeOrders,
    pub idem: FakeIdem,
    pub tasks: Tasks,
    pub trigger: Trigger,
    pub api: SocketAddr,
    pub admin: SocketAddr,
    pub client: Client,
}

/// An answer, read to its end.
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl World {
    pub async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (tasks, orders, idem) = (Tasks::new(), FakeOrders::default(), FakeIdem::default());
        let (idem_endpoint, listener) = listen().await;
        let (idempotency, admin_service) = idem.servers();
        let server = Server::builder().add_service(idempotency).add_service(admin_service);
        drop(tasks.spawn("idem", server.serve_with_incoming(TcpListenerStream::new(listener))));
        let (orders_endpoint, listener) = listen().await;
        let server = Server::builder().add_service(orders.server());
        drop(tasks.spawn("orders", server.serve_with_incoming(TcpListenerStream::new(listener))));

        let entry = |key: &str, operator| ApiKeyEntry {
            tenant: "a".to_owned(),
            secret: ApiKeySecret::Key(key.to_owned()),
            operator,
            expires_at: None,
        };
        let keys = ApiKeys::from_entries([entry("sk_a", false), entry("sk_ops", true)]).unwrap();
        let mut config = Config::new(keys, idem_endpoint, orders_endpoint);
        config.service_token = Some(Secret::new("st_1".to_owned()));
        change(&mut config);
        let gateway = Gateway::bind(config).unwrap();
        let (api, admin) = (gateway.local_addr().unwrap(), gateway.admin_addr().unwrap());
        let (trigger, shutdown) = Shutdown::new();
        drop(tasks.spawn("gateway", async move { gateway.serve(shutdown).await }));
        Self { orders, idem, tasks, trigger, api, admin, client: Client::new() }
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.api);
        self.client.request(method.parse().unwrap(), url).bearer_auth("sk_a")
    }

    pub fn post(&self, path: &str, key: &str, body: &str) -> RequestBuilder {
        let request = self.request("POST", path).header("idempotency-key", key);
        request.header("content-type", "application/json").body(body.to_owned())
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request("GET", path).send().await.unwrap()).await
    }
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }

    /// `status error/code`, for problems.
    pub fn problem(&self) -> String {
        let problem = self.json();
        let code = problem["code"].as_str().map(|code| format!("/{code}")).unwrap_or_default();
        format!("{} {}{code}", self.status, problem["error"].as_str().unwrap_or_default())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends and reads.
pub async fn send(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.unwrap()).await
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    #[allow(clippy::disallowed_methods, reason = "bounds the test itself")]
    let begun = WallInstant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An endpoint at which somebody listens.
async fn listen() -> (Endpoint, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (format!("http://{}", listener.local_addr().unwrap()).parse().unwrap(), listener)
}

/// An endpoint at which nobody listens.
pub async fn nobody() -> Endpoint {
    listen().await.0
}
