//! A sandbox, and a merchant that listens to its webhooks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acquirer_sandbox::{Config, Sandbox};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use chassis::flags::Secret;
use chassis::listen;
use chassis::serve::{self, Drained};
use chassis::shutdown::{Shutdown, Trigger};
use chassis::tasks::Tasks;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "whsec_of_this_test";
pub(crate) const HOUR: &str = "3600000";

/// Far more than anything here takes; a test that would wait longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) merchant: Merchant,
    address: SocketAddr,
    client: reqwest::Client,
    trigger: Trigger,
    served: JoinHandle<Drained>,
}

pub(crate) struct Merchant {
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    /// What the next deliveries are answered; 200 after that.
    answers: Arc<Mutex<VecDeque<StatusCode>>>,
}

pub(crate) struct Delivery {
    pub(crate) signature: String,
    pub(crate) bytes: Bytes,
    pub(crate) event: Value,
}

// === impl World ===

impl World {
    pub(crate) async fn start() -> Self {
        let (merchant, url) = Merchant::start();
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            webhook_url: None,
            webhook_secret: Some(Secret::new(SECRET.to_owned())),
            drain: PATIENCE,
        };
        let sandbox = Sandbox::bind(config).unwrap();
        sandbox.set_webhook_url(&url).unwrap();
        let address = sandbox.local_addr();
        let (trigger, shutdown) = Shutdown::new();
        let served = Tasks::new().spawn("sandbox", sandbox.serve(shutdown));
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        World { merchant, address, client, trigger, served }
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&str>) -> reqwest::Result<(u16, Value)> {
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        let response = match body {
            Some(body) => request.body(body.to_owned()),
            None => request,
        };
        let response = response.send().await?;
        let status = response.status().as_u16();
        Ok((status, response.json().await?))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, None).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, Some(&body.to_string())).await.unwrap()
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, Some(&body.to_string())).await.unwrap()
    }

    /// Pays 20 EUR; the error is the transport's.
    pub(crate) async fn try_pay(&self, id: &str, method: &str) -> reqwest::Result<(u16, Value)> {
        self.call(Method::PUT, &format!("/payments/{id}"), Some(&charge(method).to_string())).await
    }

    pub(crate) async fn pay(&self, id: &str, method: &str) -> (u16, Value) {
        self.try_pay(id, method).await.unwrap()
    }

    /// Pays over a connection of its own, so that a test sees every byte of it.
    pub(crate) async fn pay_raw(&self, id: &str, method: &str) -> TcpStream {
        let body = charge(method).to_string();
        let request =
            format!("PUT /payments/{id} HTTP/1.1\r\nhost: sandbox\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Where the payment stands for a merchant; None when it is not known.
    pub(crate) async fn status(&self, id: &str) -> Option<String> {
        match self.get(&format!("/payments/{id}")).await {
            (200, payment) => Some(payment["status"].as_str().unwrap().to_owned()),
            (404, _) => None,
            unexpected => panic!("{unexpected:?}"),
        }
    }

    /// Waits until a payment sent elsewhere has been taken.
    pub(crate) async fn taken(&self, id: &str) {
        while self.get(&format!("/sandbox/payments/{id}")).await.0 == 404 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn charges(&self, id: &str) -> u64 {
        self.get(&format!("/sandbox/payments/{id}")).await.1["charges"].as_u64().unwrap()
    }

    pub(crate) async fn settle(&self, id: &str, status: &str) -> (u16, Value) {
        self.post(&format!("/sandbox/payments/{id}/settle"), json!({"status": status})).await
    }

    pub(crate) fn begin_shutdown(&self) {
        self.trigger.begin();
    }

    pub(crate) async fn stopped(self) -> Drained {
        tokio::time::timeout(PATIENCE, self.served).await.unwrap().unwrap()
    }
}

// === impl Merchant ===

impl Merchant {
    fn start() -> (Self, String) {
        let listener = listen::bind("127.0.0.1:0".parse().unwrap(), "the merchant", "--listen").unwrap();
        let url = format!("http://{}/webhooks/acquirer", listener.local_addr().unwrap());
        let (sender, deliveries) = mpsc::unbounded_channel();
        let answers = Arc::<Mutex<VecDeque<StatusCode>>>::default();
        let next = Arc::clone(&answers);
        let accept = async move |headers: HeaderMap, bytes: Bytes| {
            assert_eq!(headers["content-type"], "application/json");
            let signature = headers["acquirer-signature"].to_str().unwrap().to_owned();
            let event = serde_json::from_slice(&bytes).unwrap();
            sender.send(Delivery { signature, bytes, event }).unwrap();
            next.lock().unwrap().pop_front().unwrap_or(StatusCode::OK)
        };
        let router = Router::new().route("/webhooks/acquirer", post(accept));
        let (_, never) = Shutdown::new();
        drop(Tasks::new().spawn("merchant", serve::http(listener, router, never, Duration::ZERO)));
        (Merchant { deliveries, answers }, url)
    }

    pub(crate) fn answers_next(&self, status: StatusCode) {
        self.answers.lock().unwrap().push_back(status);
    }

    pub(crate) async fn next(&mut self) -> Delivery {
        tokio::time::timeout(PATIENCE, self.deliveries.recv()).await.expect("a webhook in time").unwrap()
    }

    /// The next event, which must be this decision about this payment.
    pub(crate) async fn hears(&mut self, kind: &str, payment: &str) -> Value {
        let event = self.next().await.event;
        assert_eq!((&event["type"], &event["paymentId"]), (&json!(kind), &json!(payment)));
        event
    }
}

pub(crate) fn charge(method: &str) -> Value {
    json!({"amount": 2000, "currency": "EUR", "method": method})
}

pub(crate) fn payment(id: &str, status: &str, method: &str) -> Value {
    json!({"id": id, "status": status, "amount": 2000, "currency": "EUR", "method": method})
}

/// All that comes over the connection before it is closed; a reset is an end as well.
pub(crate) async fn read_to_close(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("closed in time");
    bytes
}
