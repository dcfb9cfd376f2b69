//! One orders service on a store of its own, an acquirer, and a caller.

use std::{collections::BTreeMap, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use chassis::{
    clock,
    shutdown::{Shutdown, Trigger},
    tasks::Tasks,
};
use database::{
    Clock, Hand, StoreUrl,
    testing::{Scratch, postgres_url, sqlite_url},
};
use idem_proto::orders::v1 as proto;
use idem_proto::orders::v1::{
    Answer, CloseResponse, HandleWebhookRequest, Label, LookupResponse, Money, Operation, Order, OrderStatus, Payment,
    PlaceOrderItem, PlaceOrderRequest, PutTicketTypeRequest, PutTicketTypeResponse, RefusalReason, TicketType,
    close_response, handle_webhook_response, lookup_response, orders_service_client::OrdersServiceClient, result::Kind,
};
use orders_service::{Config, OrdersService, acquirer::Acquirer, operation_id::OperationId};
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::script::Script;

pub const HOLD: Duration = Duration::from_secs(30 * 60);
pub const TENANT: &str = "demo-a";

/// How long a background loop may take to notice what is due. Nothing waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct World {
    pub client: OrdersServiceClient<Channel>,
    pub address: SocketAddr,
    pub script: Arc<Script>,
    pub hand: Hand,
    trigger: Trigger,
    serving: Option<tokio::task::JoinHandle<chassis::serve::Drained>>,
    // Last, so that the store outlives the service.
    _store: Arc<Scratch>,
}

/// One intent of a buyer.
#[derive(Clone, Debug)]
pub struct Intent {
    pub tenant: String,
    pub id: String,
}

impl World {
    pub async fn on_sqlite() -> Self {
        Self::on(Arc::new(sqlite_url())).await
    }

    pub async fn on_postgres(name: &str) -> Self {
        let name: String = name.chars().take(20).collect();
        Self::on(Arc::new(postgres_url(&name).await)).await
    }

    async fn on(store: Arc<Scratch>) -> Self {
        let script = Arc::new(Script::new());
        let mut world = Self::with(store, Config::default(), Arc::clone(&script) as Arc<dyn Acquirer>).await;
        world.script = script;
        world.put("general", 100, 1000).await;
        world
    }

    /// On this store, through its own address.
    pub async fn with(store: Arc<Scratch>, config: Config, acquirer: Arc<dyn Acquirer>) -> Self {
        let config = Config { store: store.url().clone(), ..config };
        Self::over(store, config, acquirer).await
    }

    /// On this store, by the address in the configuration.
    pub async fn over(store: Arc<Scratch>, config: Config, acquirer: Arc<dyn Acquirer>) -> Self {
        let config = Config { listen: ([127, 0, 0, 1], 0).into(), admin_listen: ([127, 0, 0, 1], 0).into(), ..config };
        let (clock, hand) = Clock::by_hand();
        let service = OrdersService::bind_with(config, clock, acquirer).await.unwrap();
        let address = service.local_addr().unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let serving = Tasks::new().spawn("orders", service.serve(shutdown, Duration::from_secs(5)));
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let client = OrdersServiceClient::new(channel);
        Self { client, address, script: Arc::new(Script::new()), hand, trigger, serving: Some(serving), _store: store }
    }

    /// Stops the service the way SIGTERM does; the store stays.
    pub async fn stop(mut self) -> Arc<Scratch> {
        self.trigger.begin();
        let drained = self.serving.take().unwrap().await.unwrap();
        assert!(drained.in_time, "work was cut at the end of the drain");
        Arc::clone(&self._store)
    }

    /// The store, for another service on it.
    pub fn store(&self) -> Arc<Scratch> {
        Arc::clone(&self._store)
    }

    /// Where the store is, past any pooler.
    pub fn store_directly(&self) -> StoreUrl {
        self._store.direct()
    }

    pub fn advance(&self, by: Duration) {
        self.hand.advance(by);
    }

    // === the catalogue ===

    pub async fn put(&self, id: &str, capacity: i64, price: i64) -> PutTicketTypeResponse {
        self.put_at("demo", id, capacity, price, "EUR").await
    }

    pub async fn put_at(
        &self,
        venue: &str,
        id: &str,
        capacity: i64,
        price: i64,
        currency: &str,
    ) -> PutTicketTypeResponse {
        let ticket_type = TicketType {
            id: id.to_owned(),
            venue_id: venue.to_owned(),
            name: id.to_owned(),
            price: Some(Money { amount: price, currency: currency.to_owned() }),
            capacity,
            ..Default::default()
        };
        let request = PutTicketTypeRequest { ticket_type: Some(ticket_type) };
        self.client.clone().put_ticket_type(request).await.unwrap().into_inner()
    }

    /// (sold, held, available)
    pub async fn stock(&self, id: &str) -> (i64, i64, i64) {
        let request = proto::GetTicketTypeRequest { id: id.to_owned() };
        let found = self.client.clone().get_ticket_type(request).await.unwrap().into_inner().ticket_type.unwrap();
        (found.sold, found.held, found.available)
    }

    // === mutations ===

    pub async fn place(&self, intent: &Intent, token: i64, quantity: u32) -> Result<Answer, Status> {
        self.place_of(intent, token, "demo", &[("general", quantity)]).await
    }

    pub async fn place_of(
        &self,
        intent: &Intent,
        token: i64,
        venue: &str,
        items: &[(&str, u32)],
    ) -> Result<Answer, Status> {
        let item =
            |(id, quantity): &(&str, u32)| PlaceOrderItem { ticket_type_id: (*id).to_owned(), quantity: *quantity };
        let request = PlaceOrderRequest {
            operation: intent.with(token),
            venue_id: venue.to_owned(),
            items: items.iter().map(item).collect(),
        };
        Ok(self.client.clone().place_order(request).await?.into_inner().answer.unwrap())
    }

    /// Places an order that must succeed.
    pub async fn ordered(&self, quantity: u32) -> Order {
        self.place(&Intent::new(), 1, quantity).await.unwrap().order()
    }

    pub async fn pay(&self, intent: &Intent, token: i64, order: &str, method: &str) -> Result<Answer, Status> {
        let request = Request::new(pay_request(intent, token, order, method));
        Ok(self.client.clone().pay(request).await?.into_inner().answer.unwrap())
    }

    pub async fn pay_within(
        &self,
        limit: Duration,
        intent: &Intent,
        token: i64,
        order: &str,
        method: &str,
    ) -> Result<Answer, Status> {
        let mut request = Request::new(pay_request(intent, token, order, method));
        request.set_timeout(limit);
        Ok(self.client.clone().pay(request).await?.into_inner().answer.unwrap())
    }

    /// An order paid at the acquirer, and the intent that paid it.
    pub async fn paid(&self, quantity: u32) -> (Order, Intent) {
        let (order, intent) = (self.ordered(quantity).await, Intent::new());
        self.pay(&intent, 1, &order.id, "pm_approved").await.unwrap().payment();
        (order, intent)
    }

    pub async fn confirm(&self, intent: Option<&Intent>, token: i64, order: &str) -> Result<Answer, Status> {
        let operation = Intent::or_unkeyed(intent, token);
        let request = proto::ConfirmOrderRequest { operation, order_id: order.to_owned() };
        Ok(self.client.clone().confirm_order(request).await?.into_inner().answer.unwrap())
    }

    pub async fn cancel(&self, intent: Option<&Intent>, token: i64, order: &str) -> Result<Answer, Status> {
        let operation = Intent::or_unkeyed(intent, token);
        let request = proto::CancelOrderRequest { operation, order_id: order.to_owned() };
        Ok(self.client.clone().cancel_order(request).await?.into_inner().answer.unwrap())
    }

    pub async fn check_in(&self, intent: Option<&Intent>, token: i64, ticket: &str) -> Result<Answer, Status> {
        let operation = Intent::or_unkeyed(intent, token);
        let request = proto::CheckInTicketRequest { operation, ticket_id: ticket.to_owned() };
        Ok(self.client.clone().check_in_ticket(request).await?.into_inner().answer.unwrap())
    }

    // === asking ===

    pub async fn order(&self, id: &str) -> Order {
        self.order_of(TENANT, id).await.unwrap()
    }

    pub async fn order_of(&self, tenant: &str, id: &str) -> Result<Order, Status> {
        let request = proto::GetOrderRequest { tenant: tenant.to_owned(), id: id.to_owned() };
        Ok(self.client.clone().get_order(request).await?.into_inner().order.unwrap())
    }

    pub async fn payment_of(&self, tenant: &str, id: &str) -> Result<Payment, Status> {
        let request = proto::GetPaymentRequest { tenant: tenant.to_owned(), id: id.to_owned() };
        Ok(self.client.clone().get_payment(request).await?.into_inner().payment.unwrap())
    }

    pub async fn payment(&self, intent: &Intent) -> Payment {
        self.payment_of(TENANT, &intent.payment()).await.unwrap()
    }

    pub async fn lookup(&self, intent: &Intent, token: i64) -> Result<lookup_response::Outcome, Status> {
        self.look(intent, token, false).await
    }

    pub async fn look(
        &self,
        intent: &Intent,
        token: i64,
        background: bool,
    ) -> Result<lookup_response::Outcome, Status> {
        let request = proto::LookupRequest { operation_id: intent.id.clone(), fencing_token: token, background };
        let LookupResponse { outcome } = self.client.clone().lookup(request).await?.into_inner();
        Ok(outcome.unwrap())
    }

    pub async fn close(&self, intent: &Intent, token: i64) -> Result<close_response::Outcome, Status> {
        let request = proto::CloseRequest { operation_id: intent.id.clone(), fencing_token: token };
        let CloseResponse { outcome } = self.client.clone().close(request).await?.into_inner();
        Ok(outcome.unwrap())
    }

    pub async fn deliver(&self, body: &str) -> handle_webhook_response::Outcome {
        let signature = acquirer_sandbox::signature::sign("whsec_demo", clock::wall(), body.as_bytes());
        self.deliver_signed(body, &signature).await
    }

    pub async fn deliver_signed(&self, body: &str, signature: &str) -> handle_webhook_response::Outcome {
        let request = HandleWebhookRequest { body: body.to_owned().into(), signature: signature.to_owned() };
        self.client.clone().handle_webhook(request).await.unwrap().into_inner().outcome.unwrap()
    }

    /// Waits for what a background loop is to bring about.
    pub async fn eventually<F: Future<Output = bool>>(&self, what: &str, mut is_so: impl FnMut() -> F) {
        let waiting = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never came to this: {what}"));
    }

    pub async fn eventually_order(&self, id: &str, status: OrderStatus) {
        self.eventually(&format!("order is {status:?}"), || async { self.order(id).await.status() == status }).await;
    }
}

impl Intent {
    pub fn new() -> Self {
        Self { tenant: TENANT.to_owned(), id: Uuid::new_v4().to_string() }
    }

    pub fn with(&self, token: i64) -> Option<Operation> {
        Some(Operation { tenant: self.tenant.clone(), operation_id: self.id.clone(), fencing_token: token })
    }

    /// The payment id that follows from this intent.
    pub fn payment(&self) -> String {
        OperationId::parse(&self.id).unwrap().payment().to_string()
    }

    fn or_unkeyed(intent: Option<&Self>, token: i64) -> Option<Operation> {
        let unkeyed = Operation { tenant: TENANT.to_owned(), ..Default::default() };
        intent.map_or(Some(unkeyed), |intent| intent.with(token))
    }
}

/// What an answer says, or a failed test.
pub trait Says {
    fn order(&self) -> Order;
    fn payment(&self) -> Payment;
    fn refusal(&self) -> (Label, RefusalReason);
    fn detail(&self) -> &str;
    fn is_unknown(&self) -> bool;
}

impl Says for Answer {
    fn order(&self) -> Order {
        match self.result.clone().and_then(|result| result.kind) {
            Some(Kind::Order(order)) if self.label() == Label::Final => order,
            other => panic!("not a final order: {:?} {other:?}", self.label()),
        }
    }

    fn payment(&self) -> Payment {
        match self.result.clone().and_then(|result| result.kind) {
            Some(Kind::Payment(payment)) if self.label() == Label::Final => payment,
            other => panic!("not a final payment: {:?} {other:?}", self.label()),
        }
    }

    fn refusal(&self) -> (Label, RefusalReason) {
        match self.result.clone().and_then(|result| result.kind) {
            Some(Kind::Refusal(refusal)) => (self.label(), refusal.reason()),
            other => panic!("not a refusal: {:?} {other:?}", self.label()),
        }
    }

    fn detail(&self) -> &str {
        match self.result.as_ref().and_then(|result| result.kind.as_ref()) {
            Some(Kind::Refusal(refusal)) => &refusal.detail,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    fn is_unknown(&self) -> bool {
        self.label() == Label::Unknown && self.result.is_none()
    }
}

/// The final refusal of a settled look-up.
pub fn settled_refusal(outcome: lookup_response::Outcome) -> RefusalReason {
    match outcome {
        lookup_response::Outcome::Settled(settled) => {
            assert_eq!(settled.label(), Label::Final);
            match settled.result.and_then(|result| result.kind) {
                Some(Kind::Refusal(refusal)) => refusal.reason(),
                other => panic!("not a refusal: {other:?}"),
            }
        }
        other => panic!("not settled: {other:?}"),
    }
}

/// The code and reason of a status.
pub fn why<T: std::fmt::Debug>(refused: Result<T, Status>) -> (Code, String) {
    let status = refused.expect_err("it was not refused");
    let reason = status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default();
    (status.code(), reason)
}

pub fn pay_request(intent: &Intent, token: i64, order: &str, method: &str) -> proto::PayRequest {
    proto::PayRequest { operation: intent.with(token), order_id: order.to_owned(), payment_method: method.to_owned() }
}

/// An event of the acquirer about a payment.
pub fn event(id: &str, kind: &str, payment: &str, amount: i64) -> String {
    let fields = BTreeMap::from([
        ("id", serde_json::json!(id)),
        ("type", serde_json::json!(kind)),
        ("paymentId", serde_json::json!(payment)),
        ("amount", serde_json::json!(amount)),
        ("currency", serde_json::json!("EUR")),
        ("occurredAt", serde_json::json!("2026-11-30T12:00:00Z")),
    ]);
    serde_json::to_string(&fields).unwrap()
}
