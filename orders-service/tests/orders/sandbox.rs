//! The whole way over HTTP to the real acquirer sandbox, its webhooks included, by every payment method it has.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use acquirer_sandbox::Sandbox;
use axum::{Router, body::Bytes, http::HeaderMap, http::StatusCode, routing::post};
use chassis::{shutdown::Shutdown, tasks::Tasks};
use database::testing::{Scratch, postgres_url, sqlite_url};
use idem_proto::orders::v1::{
    HandleWebhookRequest, Label, OrderStatus, PaymentStatus, RefusalReason, handle_webhook_response::Outcome,
    lookup_response::Outcome as Found,
};
use orders_service::{
    Config,
    acquirer::{Acquirer, http::HttpAcquirer},
};
use serde_json::{Value, json};

use crate::world::{Intent, Says as _, World};

/// An orders service, a sandbox, and what stands between them: the gateway's part of forwarding webhooks.
pub struct Market {
    pub world: World,
    sandbox: SocketAddr,
    _ends: Vec<chassis::shutdown::Trigger>,
}

impl Market {
    async fn open(store: Scratch) -> Self {
        Self::reached_by(store, async |sandbox| {
            HttpAcquirer::new(&format!("http://{sandbox}").parse().unwrap(), None, Duration::from_secs(1)).unwrap()
        })
        .await
    }

    /// With another way to the sandbox.
    pub async fn reached_by(store: Scratch, way: impl AsyncFnOnce(SocketAddr) -> HttpAcquirer) -> Self {
        let config = acquirer_sandbox::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            webhook_url: None,
            webhook_secret: None,
            drain: Duration::from_millis(100),
        };
        let sandbox = Sandbox::bind(config).unwrap();
        let address = sandbox.local_addr();
        let acquirer = way(address).await;
        let config = Config { acquirer_timeout: Duration::from_millis(800), ..Config::default() };
        let world = World::with(Arc::new(store), config, Arc::new(acquirer) as Arc<dyn Acquirer>).await;
        world.put("general", 1000, 1000).await;

        let forwarder = chassis::listen::bind(([127, 0, 0, 1], 0).into(), "webhooks", "--none").unwrap();
        sandbox.set_webhook_url(&format!("http://{}/webhook", forwarder.local_addr().unwrap())).unwrap();
        let client = world.client.clone();
        let route = post(move |headers: HeaderMap, body: Bytes| {
            let mut client = client.clone();
            async move {
                let signature = headers["acquirer-signature"].to_str().unwrap().to_owned();
                match client.handle_webhook(HandleWebhookRequest { body, signature }).await {
                    Ok(answer) if matches!(answer.get_ref().outcome, Some(Outcome::Accepted(_))) => StatusCode::OK,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                }
            }
        });
        let (tasks, mut ends) = (Tasks::new(), Vec::new());
        let (end, shutdown) = Shutdown::new();
        ends.push(end);
        let router = Router::new().route("/webhook", route);
        drop(tasks.spawn("forwarder", chassis::serve::http(forwarder, router, shutdown, Duration::ZERO)));
        let (end, shutdown) = Shutdown::new();
        ends.push(end);
        drop(tasks.spawn("sandbox", sandbox.serve(shutdown)));
        Self { world, sandbox: address, _ends: ends }
    }

    async fn control(&self, path: &str, body: Value) -> Value {
        let url = format!("http://{}/sandbox/{path}", self.sandbox);
        reqwest::Client::new().post(url).json(&body).send().await.unwrap().json().await.unwrap_or_default()
    }

    async fn counters(&self, intent: &Intent) -> Value {
        let url = format!("http://{}/sandbox/payments/{}", self.sandbox, intent.payment());
        reqwest::get(url).await.unwrap().json().await.unwrap_or_default()
    }

    pub async fn charges(&self, intent: &Intent) -> u64 {
        self.counters(intent).await["charges"].as_u64().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_ends_as_it_should_on_sqlite() {
    every_method(Market::open(sqlite_url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_ends_as_it_should_on_postgres() {
    every_method(Market::open(postgres_url("methods").await).await).await;
}

async fn every_method(market: Market) {
    let world = &market.world;
    for method in ["pm_approved", "pm_slow_200", "pm_charge_then_hang", "pm_charge_then_drop"] {
        let (order, intent) = (world.ordered(1).await, Intent::new());
        let payment = world.pay(&intent, 1, &order.id, method).await.unwrap().payment();
        assert_eq!(payment.status(), PaymentStatus::Approved, "{method}");
        assert_eq!(market.charges(&intent).await, 1, "{method}");
        assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid, "{method}");
    }
    for method in ["pm_declined", "pm_nonsense"] {
        let (order, intent) = (world.ordered(1).await, Intent::new());
        let refusal = world.pay(&intent, 1, &order.id, method).await.unwrap().refusal();
        assert_eq!(refusal, (Label::Final, RefusalReason::PaymentDeclined), "{method}");
    }
    for method in ["pm_error", "pm_drop"] {
        let (order, intent) = (world.ordered(1).await, Intent::new());
        assert!(world.pay(&intent, 1, &order.id, method).await.unwrap().is_unknown(), "{method}");
        assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)), "{method}");
        assert_eq!(market.charges(&intent).await, 0, "{method}");
    }
    for (method, decision, status) in [
        ("pm_pending", "approved", OrderStatus::Paid),
        ("pm_pending", "declined", OrderStatus::Pending),
        ("pm_pending_charge_then_hang", "approved", OrderStatus::Paid),
        ("pm_slow_3000", "", OrderStatus::Paid),
    ] {
        let (order, intent) = (world.ordered(1).await, Intent::new());
        let answer = world.pay(&intent, 1, &order.id, method).await.unwrap();
        assert!(answer.label() == Label::Unknown && answer.result.is_some(), "{method}");
        if !decision.is_empty() {
            let path = format!("payments/{}/settle", intent.payment());
            let settled = market.control(&path, json!({"status": decision})).await;
            assert!(settled["eventId"].is_string(), "{settled}");
        }
        world
            .eventually(&format!("{method} is settled"), || async {
                matches!(world.look(&intent, 2, true).await.unwrap(), Found::Settled(_))
            })
            .await;
        assert_eq!(world.order(&order.id).await.status(), status, "{method} {decision}");
    }
    late_charge_on_a_closed_payment(&market).await;
    cancelled(&market).await;
}

async fn late_charge_on_a_closed_payment(market: &Market) {
    let world = &market.world;
    let (order, intent, rival) = (world.ordered(1).await, Intent::new(), Intent::new());
    assert!(world.pay(&intent, 1, &order.id, "pm_late_1500").await.unwrap().is_unknown());
    world.close(&intent, 2).await.unwrap();
    world.pay(&rival, 1, &order.id, "pm_approved").await.unwrap().payment();
    world
        .eventually("the late charge is refunded", || async {
            world.payment(&intent).await.status() == PaymentStatus::Refunded
        })
        .await;
    let counters = market.counters(&intent).await;
    assert_eq!((&counters["charges"], &counters["refunds"]), (&json!(1), &json!(1)));
    assert_eq!(market.counters(&rival).await["refunds"], json!(0));
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
}

async fn cancelled(market: &Market) {
    let world = &market.world;
    let (order, intent) = world.paid(1).await;
    market.control("outage", json!({"seconds": 2})).await;
    assert_eq!(world.cancel(None, 0, &order.id).await.unwrap().order().status(), OrderStatus::RefundPending);
    world.eventually_order(&order.id, OrderStatus::Refunded).await;
    assert_eq!(market.counters(&intent).await["refunds"], json!(1));
}
