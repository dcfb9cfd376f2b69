//! The whole system in this process, over real ports, with the stores' clocks in the test's hand.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{PrivateDatabase, Reply, eventually};

static TELEMETRY: OnceLock<chassis::telemetry::Guard> = OnceLock::new();

/// Which store a world runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// Files in a temporary directory.
    Sqlite,
    /// A database of its own on the private server.
    Postgres,
}

/// A running system.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    local: Mutex<Option<idem_local::World>>,
    addresses: idem_local::Addresses,
    hands: [database::Hand; 2],
    http: reqwest::Client,
    settings: idem_local::Settings,
    _directory: tempfile::TempDir,
}

impl World {
    /// Starts one with the defaults of production.
    pub async fn start(store: Store) -> Self {
        Self::start_with(store, |_| {}).await
    }

    /// Starts one with other settings.
    pub async fn start_with(store: Store, change: impl FnOnce(&mut idem_local::Settings)) -> Self {
        // As every process does; without it there are no traces and no metrics.
        TELEMETRY.get_or_init(|| chassis::telemetry::init("e2e"));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (idem_clock, idem_hand) = database::Clock::by_hand();
        let (orders_clock, orders_hand) = database::Clock::by_hand();
        let mut settings = idem_local::Settings {
            data: match store {
                Store::Sqlite => idem_local::Data::Directory(directory.path().to_owned()),
                Store::Postgres => idem_local::Data::Postgres(PrivateDatabase::create().await.url),
            },
            ports: idem_local::Ports::Any,
            api_keys: vec![("demo-a".into(), "sk_test_a_rotated".into())],
            idem_clock,
            orders_clock,
            ..idem_local::Settings::default()
        };
        change(&mut settings);
        let local = idem_local::World::start(settings.clone()).await.expect("the world starts");
        let addresses = local.addresses();
        let http = reqwest::Client::builder().pool_max_idle_per_host(64).build().unwrap();
        let inner = Inner {
            local: Mutex::new(Some(local)),
            addresses,
            hands: [idem_hand, orders_hand],
            http,
            settings,
            _directory: directory,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Stops it the orderly way.
    pub async fn stop(&self) {
        if let Some(local) = self.inner.local.lock().await.take() {
            local.stop().await;
        }
    }

    /// Where everything listens.
    pub fn addresses(&self) -> &idem_local::Addresses {
        &self.inner.addresses
    }

    /// What it was started with.
    pub fn settings(&self) -> &idem_local::Settings {
        &self.inner.settings
    }

    /// Moves the clocks of both stores.
    pub fn advance(&self, by: Duration) {
        self.inner.hands.iter().for_each(|hand| hand.advance(by));
    }

    /// Lets the lease of every running holder run out.
    pub fn let_leases_run_out(&self) {
        self.advance(self.inner.settings.lease + Duration::from_millis(1));
    }

    /// An HTTP client without redirects or retries of its own.
    pub fn http(&self) -> &reqwest::Client {
        &self.inner.http
    }

    /// A request to the gateway, as tenant `demo-a`.
    pub fn ask(&self, method: Method, path: &str) -> Ask {
        let url = format!("http://{}{path}", self.inner.addresses.rest);
        Ask { request: self.inner.http.request(method, url), is_authorized: false }
    }

    /// `GET path` as tenant `demo-a`.
    pub async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path).send().await
    }

    /// `POST path` with a key and a JSON body.
    pub async fn post(&self, path: &str, key: &str, body: Value) -> Reply {
        self.ask(Method::POST, path).key(key).json(&body).send().await
    }

    /// `POST path` as a patient client does: once more with the same key while it is told to come again. Many at once may be too
    /// many for the two seconds of a Reserve when the machine is busy with something else.
    pub async fn post_patiently(&self, path: &str, key: &str, body: Value) -> Reply {
        eventually(&format!("{key} is answered"), || async {
            let reply = self.post(path, key, body.clone()).await;
            let comes_again = reply.status == 503 || (reply.status == 409 && reply.json()["error"] == "conflict");
            (!comes_again).then_some(reply)
        })
        .await
    }

    /// `POST path` without a key or a body.
    pub async fn post_bare(&self, path: &str) -> Reply {
        self.ask(Method::POST, path).send().await
    }

    /// The body of an order of `quantity` general tickets.
    pub fn order_body(quantity: u32) -> Value {
        Self::order_body_of("general", quantity)
    }

    /// The body of an order of one ticket type.
    pub fn order_body_of(ticket_type: &str, quantity: u32) -> Value {
        json!({"venueId": "demo", "items": [{"ticketTypeId": ticket_type, "quantity": quantity}]})
    }

    /// Places an order of `quantity` general tickets and gives its id.
    pub async fn place(&self, key: &str, quantity: u32) -> String {
        self.post("/v1/orders", key, Self::order_body(quantity)).await.expect(201).text("id")
    }

    /// `POST /v1/payments`.
    pub async fn pay(&self, key: &str, order: &str, method: &str) -> Reply {
        self.post("/v1/payments", key, json!({"orderId": order, "paymentMethod": method})).await
    }

    /// The order as it is now.
    pub async fn order(&self, id: &str) -> Value {
        self.get(&format!("/v1/orders/{id}")).await.expect(200).json()
    }

    /// The status of an order now.
    pub async fn order_status(&self, id: &str) -> String {
        self.order(id).await["status"].as_str().unwrap().to_owned()
    }

    /// The status of a payment now.
    pub async fn payment_status(&self, id: &str) -> String {
        self.get(&format!("/v1/payments/{id}")).await.expect(200).text("status")
    }

    /// A ticket type as it is now.
    pub async fn ticket_type(&self, id: &str) -> Value {
        self.get(&format!("/v1/ticket-types/{id}")).await.expect(200).json()
    }

    /// Creates or changes a ticket type of venue `demo`, 1000 minor units EUR.
    pub async fn put_ticket_type(&self, id: &str, capacity: u64) -> Reply {
        let body =
            json!({"venueId": "demo", "name": id, "price": {"amount": 1000, "currency": "EUR"}, "capacity": capacity});
        self.ask(Method::PUT, &format!("/v1/ticket-types/{id}")).as_operator().json(&body).send().await
    }

    /// What the service says of the caller's own key.
    pub async fn key_state(&self, key: &str) -> Reply {
        self.get(&format!("/v1/idempotency-keys/{key}")).await
    }

    /// Waits until the key is in `state`.
    pub async fn until_key_is(&self, key: &str, state: &str) -> Value {
        eventually(&format!("key {key} is {state}"), || async {
            let reply = self.key_state(key).await;
            (reply.status == 200 && reply.json()["state"] == state).then(|| reply.json())
        })
        .await
    }

    /// A control request to the acquirer sandbox.
    pub async fn sandbox(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        let url = format!("http://{}{path}", self.inner.addresses.sandbox);
        let request = self.inner.http.request(method, url);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        Reply::read(request.send().await.expect("the sandbox answers")).await
    }

    /// What the acquirer counts for a payment: `{status, charges, queries, refunds}`.
    pub async fn acquirer_payment(&self, id: &str) -> Value {
        self.sandbox(Method::GET, &format!("/sandbox/payments/{id}"), None).await.expect(200).json()
    }

    /// `{charges, captured, refunded}` of the acquirer.
    pub async fn acquirer_totals(&self) -> Value {
        self.sandbox(Method::GET, "/sandbox/totals", None).await.expect(200).json()
    }

    /// Decides a pending payment at the acquirer; gives the event id.
    pub async fn settle(&self, payment: &str, status: &str) -> String {
        let path = format!("/sandbox/payments/{payment}/settle");
        self.sandbox(Method::POST, &path, Some(json!({"status": status}))).await.expect(200).text("eventId")
    }

    /// Loses every webhook from now on.
    pub async fn lose_webhooks(&self) {
        let reply = self.sandbox(Method::POST, "/sandbox/webhooks", Some(json!({"enabled": false}))).await;
        assert!(reply.status.is_success());
    }
}

/// A request being built.
pub struct Ask {
    request: reqwest::RequestBuilder,
    is_authorized: bool,
}

impl Ask {
    /// With an `Idempotency-Key`.
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// With a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    /// With an API key other than that of `demo-a`; empty for none.
    pub fn api_key(mut self, key: &str) -> Self {
        self.is_authorized = true;
        if !key.is_empty() {
            self.request = self.request.bearer_auth(key);
        }
        self
    }

    /// As the operator.
    pub fn as_operator(self) -> Self {
        self.api_key("sk_demo_ops")
    }

    /// With a JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.bytes("application/json", Bytes::from(body.to_string()))
    }

    /// With any body.
    pub fn bytes(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.request = self.request.header("content-type", content_type).body(body.into());
        self
    }

    /// Sends it; panics when no answer comes.
    pub async fn send(self) -> Reply {
        self.try_send().await.expect("the gateway answers")
    }

    /// Sends it.
    pub async fn try_send(mut self) -> Result<Reply, reqwest::Error> {
        if !self.is_authorized {
            self.request = self.request.bearer_auth("sk_demo_a");
        }
        Ok(Reply::read(self.request.send().await?).await)
    }
}
