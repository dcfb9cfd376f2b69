//! One play: its own ids and acquirer, and what clients, gateway, reconciler and acquirer do when something breaks.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fault_point::Plan;
use futures::{FutureExt as _, future::BoxFuture};
use uuid::Uuid;

use super::{bench::Bench, script::Script};
use crate::{
    entry::Call,
    error::OrdersError,
    money::{Currency, Money},
    operation_id::{FencingToken, Grant, OperationId, OrderId, PaymentId, Tenant},
    outcome::{Answer, Kind, Label, Outcome, RefusalReason},
    pay::Pay,
    place_order::PlaceOrder,
    resolve::{Closing, Found},
    shop::{Settings, Shop},
    stock::{Offer, Seats},
};

pub const HOLD: Duration = Duration::from_secs(30 * 60);
pub const PRICE: i64 = 1000;
const SECRET: &str = "whsec_demo";
/// A lease, and the longest interval of the watch.
const LEASE: Duration = Duration::from_secs(61);
/// More tries than any single fault can use up.
const TRIES: usize = 8;

/// A keyed request, to be sent as often as it takes.
pub type Ask = Arc<dyn Fn(Shop, Grant) -> BoxFuture<'static, Result<Answer, OrdersError>> + Send + Sync>;

/// Who goes on when a keyed request breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The client tries again.
    Client,
    /// The reconciler settles the key, and the client comes back after that.
    Reconciler,
}

/// What goes on without anybody asking.
#[derive(Clone, Copy)]
pub enum Round {
    /// Holds that are over.
    Sweep,
    /// Payments that are not decided.
    Watch,
    /// Events that came before their payment.
    Events,
    /// Refunds that are not acknowledged.
    Refunds,
}

/// All of them.
pub const ROUNDS: [Round; 4] = [Round::Sweep, Round::Watch, Round::Events, Round::Refunds];

/// A keyed request that got its answer.
pub struct Answered {
    pub operation: OperationId,
    pub kind: Kind,
    pub ask: Ask,
    pub outcome: Outcome,
}

/// One play of a scenario.
pub struct Stage<'b> {
    pub bench: &'b Bench,
    pub script: Arc<Script>,
    pub ticket_type: String,
    pub answered: Mutex<Vec<Answered>>,
    next: Next,
    plan: Option<Plan>,
    is_open: AtomicBool,
}

impl<'b> Stage<'b> {
    pub fn new(bench: &'b Bench, next: Next, plan: Option<Plan>) -> Self {
        let ticket_type = format!("type-{}", Uuid::new_v4().simple());
        let (script, is_open) = (Arc::new(Script::new()), AtomicBool::new(false));
        Self { bench, script, ticket_type, answered: Mutex::default(), next, plan, is_open }
    }

    /// What comes before is only the way here, and another scenario's; from now on points count, and what is planned happens.
    pub fn open(&self) {
        assert!(!self.is_open.swap(true, Ordering::SeqCst), "a stage opens once");
        self.bench.watch.arm(self.plan.clone());
    }

    /// Nothing is planned to break.
    pub fn is_unbroken(&self) -> bool {
        self.plan.is_none()
    }

    /// The shop as after a restart: nothing in memory is left from before.
    pub fn shop(&self) -> Shop {
        let settings = Settings {
            hold_ttl: HOLD,
            acquirer_timeout: Duration::from_secs(1),
            webhook_secret: SECRET.into(),
            payment_link_base: "http://localhost/pay".to_owned(),
        };
        Shop::new(self.bench.store.clone(), self.script.clone(), settings)
    }

    // === what whoever waits for an answer does ===

    /// Asks until there is an answer: for what is safe to repeat as it is.
    pub async fn insist<T, F>(&self, what: &str, ask: impl Fn(Shop) -> F) -> T
    where
        F: Future<Output = Result<T, OrdersError>>,
    {
        for _ in 0..TRIES {
            if let Some(Ok(answer)) = survive(ask(self.shop())).await {
                return answer;
            }
            self.bench.advance(LEASE);
        }
        panic!("no answer after {TRIES} tries: {what}");
    }

    /// Sends a keyed request and does what a gateway does until it has an answer: final, or without effect.
    pub async fn keyed(&self, operation: OperationId, kind: Kind, ask: &Ask) -> Answer {
        self.keyed_from(1, operation, kind, ask).await
    }

    /// The same for a key that was granted before.
    pub async fn keyed_from(&self, first: i64, operation: OperationId, kind: Kind, ask: &Ask) -> Answer {
        let answer = survive(ask(self.shop(), grant(operation, first))).await;
        self.go_on(first, operation, kind, ask, answer).await
    }

    /// What follows the first answer to a keyed request, or the want of one.
    pub async fn go_on(
        &self,
        first: i64,
        operation: OperationId,
        kind: Kind,
        ask: &Ask,
        mut answer: Option<Result<Answer, OrdersError>>,
    ) -> Answer {
        let mut token = first;
        for _ in 0..TRIES {
            if let Some(Ok(answer)) = answer
                && answer.label != Label::Unknown
            {
                return self.remember(operation, kind, ask, answer);
            }
            // Until the lease is over nobody may act; meanwhile the rounds come round.
            self.rounds_later(&ROUNDS).await;
            if self.next == Next::Reconciler {
                token += 1;
                self.reconcile(grant(operation, token)).await;
            }
            token += 1;
            answer = match survive(self.shop().lookup(grant(operation, token), false, None)).await {
                Some(Ok(Found::Settled { outcome, label, .. })) => {
                    Some(Ok(Answer { label, outcome: Some(outcome), is_replay: true }))
                }
                Some(Ok(Found::Unknown)) => survive(ask(self.shop(), grant(operation, token))).await,
                Some(Ok(Found::Pending) | Err(_)) | None => None,
            };
        }
        panic!("an operation without an answer after {TRIES} tries");
    }

    /// Notes an answer that must replay at the end.
    pub fn remember(&self, operation: OperationId, kind: Kind, ask: &Ask, answer: Answer) -> Answer {
        let is_new = |answered: &[Answered]| answered.iter().all(|it| it.operation != operation);
        if answer.label == Label::Final && is_new(&self.answered.lock().unwrap()) {
            let outcome = answer.outcome.clone().expect("a final answer says something");
            self.answered.lock().unwrap().push(Answered { operation, kind, ask: ask.clone(), outcome });
        }
        answer
    }

    /// As the reconciler does: asks, and gives up what is unknown everywhere. Whatever breaks is left to the next look.
    pub async fn reconcile(&self, grant: Grant) {
        if let Some(Ok(Found::Unknown)) = survive(self.shop().lookup(grant, true, None)).await {
            survive(self.shop().close(grant, None)).await;
        }
    }

    /// Closes until it is closed, as reconcilers do look after look.
    pub async fn close(&self, operation: OperationId, first: i64) -> Closing {
        for token in first..first + TRIES as i64 {
            match survive(self.shop().close(grant(operation, token), None)).await {
                Some(Ok(Closing::Pending)) | Some(Err(_)) | None => self.bench.advance(LEASE),
                Some(Ok(closing)) => return closing,
            }
        }
        panic!("a payment that was never closed");
    }

    /// Delivers an event until it is taken, and then once more.
    pub async fn deliver(&self, id: &str, kind: &str, payment: PaymentId, amount: i64) {
        let body =
            format!(r#"{{"id":"{id}","type":"{kind}","paymentId":"{payment}","amount":{amount},"currency":"EUR"}}"#);
        for delivery in ["first", "repeated"] {
            self.insist(delivery, |shop| {
                let body = Bytes::from(body.clone());
                let signature = acquirer_sandbox::signature::sign(SECRET, chassis::clock::wall(), &body);
                async move { shop.receive(body, &signature, None).await }
            })
            .await;
        }
    }

    /// A minute later, one round of each of these. What breaks is left to the next.
    pub async fn rounds_later(&self, rounds: &[Round]) {
        self.bench.advance(LEASE);
        for round in rounds {
            let shop = self.shop();
            survive(shop.look()).await;
            // What operators see is looked at meanwhile.
            let counting = async {
                crate::gauges::count_open(shop.clone()).await;
                Ok(())
            };
            survive(counting).await;
            survive(shop.show_operation(new_operation())).await;
            match round {
                Round::Sweep => survive(shop.sweep_round()).await,
                Round::Watch => survive(shop.watch_round()).await,
                Round::Events => survive(shop.event_round()).await,
                Round::Refunds => survive(shop.refund_round()).await,
            };
        }
    }

    /// Lets rounds come round until a payment stands as it should.
    pub async fn until_payment_is(&self, payment: PaymentId, status: &str, rounds: &[Round]) {
        for _ in 0..TRIES {
            self.rounds_later(rounds).await;
            if self.payment_status(payment).await.as_deref() == Some(status) {
                return;
            }
        }
        panic!("the payment is {:?} and not {status}", self.payment_status(payment).await);
    }

    // === what is asked ===

    pub async fn put(&self, capacity: i64) {
        let offer = self.offer(capacity);
        self.insist("put the ticket type", |shop| {
            let offer = offer.clone();
            async move { shop.put_ticket_type(offer).await }
        })
        .await;
    }

    pub fn offer(&self, capacity: i64) -> Offer {
        let price = Money { amount: PRICE, currency: Currency::new("EUR").expect("three capitals") };
        Offer { id: self.ticket_type.clone(), venue: "demo".into(), name: "General".into(), price, capacity }
    }

    /// An order of `quantity` seats that must succeed.
    pub async fn placed(&self, quantity: u32) -> OrderId {
        let operation = new_operation();
        let answer = self.keyed(operation, Kind::PlaceOrder, &self.placing(operation, quantity)).await;
        match answer.outcome {
            Some(Outcome::Order(order)) if answer.label == Label::Final => order.id,
            other => panic!("no order: {other:?}"),
        }
    }

    pub fn placing(&self, operation: OperationId, quantity: u32) -> Ask {
        placing(&self.ticket_type, operation, quantity)
    }

    /// Pays, until the answer is final or without effect.
    pub async fn pay(&self, operation: OperationId, order: OrderId, method: &'static str) -> Answer {
        self.keyed(operation, Kind::Pay, &paying(order, method)).await
    }

    /// A payment of `order` that must be approved.
    pub async fn paid(&self, order: OrderId) -> PaymentId {
        let operation = new_operation();
        let answer = self.pay(operation, order, "pm_approved").await;
        assert!(matches!(answer.outcome, Some(Outcome::Payment(_))), "{answer:?}");
        operation.payment()
    }
}

/// Asks for an order.
fn placing(ticket_type: &str, operation: OperationId, quantity: u32) -> Ask {
    let seats = vec![Seats { ticket_type: ticket_type.to_owned(), quantity }];
    Arc::new(move |shop, grant| {
        let (call, seats) = (call(Kind::PlaceOrder, grant), seats.clone());
        let ask = PlaceOrder { call, order: operation.order(), venue: "demo".to_owned(), seats };
        Box::pin(async move { shop.place_order(ask, None).await })
    })
}

/// Asks for another order under an operation that stands for one.
pub fn placing_another(ticket_type: &str, operation: OperationId) -> Ask {
    let seats = vec![Seats { ticket_type: ticket_type.to_owned(), quantity: 1 }];
    Arc::new(move |shop, grant| {
        let (call, seats) = (Call { request: b"another".to_vec(), ..call(Kind::PlaceOrder, grant) }, seats.clone());
        let ask = PlaceOrder { call, order: operation.order(), venue: "demo".to_owned(), seats };
        Box::pin(async move { shop.place_order(ask, None).await })
    })
}

/// Asks for a payment.
pub fn paying(order: OrderId, method: &'static str) -> Ask {
    Arc::new(move |shop, grant| {
        let ask = Pay { call: call(Kind::Pay, grant), grant, order: Some(order), method: method.to_owned() };
        Box::pin(async move { shop.pay(ask, None).await })
    })
}

/// None when the task died.
pub async fn survive<T>(work: impl Future<Output = Result<T, OrdersError>>) -> Option<Result<T, OrdersError>> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Some(done),
        // Only a planned death: anything else is a bug to be seen.
        Err(panic) if panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("died at")) => None,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub fn new_operation() -> OperationId {
    OperationId::parse(&Uuid::new_v4().to_string()).expect("a UUID")
}

pub fn grant(operation: OperationId, token: i64) -> Grant {
    Grant { operation, token: FencingToken::new(token).expect("a positive number") }
}

pub fn tenant() -> Tenant {
    Tenant::new("demo-a").expect("a name")
}

pub fn call(kind: Kind, grant: Grant) -> Call {
    Call { tenant: tenant(), kind, request: b"the same request".to_vec(), grant: Some(grant) }
}

/// The reason of a refusal, or a failed test.
pub fn reason(answer: &Answer) -> (Label, RefusalReason) {
    match &answer.outcome {
        Some(Outcome::Refused(refusal)) => (answer.label, refusal.reason),
        other => panic!("not a refusal: {other:?}"),
    }
}
