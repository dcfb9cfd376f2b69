//! A small campaign in which everything is right, to be broken one thing at a time.

use std::collections::BTreeMap;

use super::{Case, KeyId, Violation, check, derive};
use crate::{
    edge::Window,
    history::{
        Answer, Call, Control, Course, Deed, Heard, History, How, Intent, IntentId, Kind, Purpose, StockSample,
        TokenSample, TokenStore, TypeSample,
    },
    ledger::{AcquirerPayment, KeyRow, Ledger, OperationRow, OrderRow, PaymentRow, RefundRow, Totals, TypeRow},
};

pub(super) const PRICE: i64 = 1000;
pub(super) const USED_AT: &str = "2026-01-02T03:04:05.678Z";

/// History, ledger and windows of a campaign.
///
/// Tenant `a`: `k1` places an order of two seats, `k2` pays it, `k3` checks a ticket in; `k4` places one, `k5` is declined for it and
/// `k6` cancels it; `k7` places one and `k8` confirms it. Tenant `b`: `k1` places one, `k2` pays it, `k9` cancels it, and the money
/// goes back. Every request was sent twice, and once more by the sweep.
pub(super) struct Fixture {
    pub(super) history: History,
    pub(super) ledger: Ledger,
    pub(super) windows: Vec<Window>,
    now: u64,
    next: u64,
}

/// An answer in JSON.
pub(super) fn json(status: u16, body: &str) -> Answer {
    let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
    Answer { status, headers, body: body.to_owned() }
}

/// A problem document.
pub(super) fn problem(status: u16, error: &str, code: &str) -> Answer {
    let is_retryable =
        status == 503 || error == "sold_out" || code.ends_with("_in_progress") || code == "outcome_pending";
    let code = if code.is_empty() { String::new() } else { format!(r#""code":"{code}","#) };
    let body = format!(r#"{{"status":{status},"error":"{error}",{code}"retryable":{is_retryable},"traceId":"t-0"}}"#);
    let mut headers = BTreeMap::from([("content-type".to_owned(), "application/problem+json".to_owned())]);
    headers.insert("idempotency-key".to_owned(), "k".to_owned());
    if is_retryable && error != "sold_out" {
        headers.insert("retry-after".to_owned(), "1".to_owned());
    }
    Answer { status, headers, body }
}

/// A keyed order of tenant `a` that was sent.
pub(super) fn call(id: u64, key: &str, sent_ms: u64) -> Call {
    Call {
        id,
        intent: None,
        buyer: 1,
        purpose: Purpose::First,
        gateway: 0,
        tenant: "a".into(),
        method: "POST".into(),
        path: "/v1/orders".into(),
        key: Some(key.into()),
        body: String::new(),
        wait_s: None,
        sent_ms,
        done_ms: None,
        heard: None,
    }
}

impl Fixture {
    pub(super) fn good() -> Self {
        let mut it =
            Self { history: History::default(), ledger: Ledger::default(), windows: Vec::new(), now: 1_000, next: 0 };
        it.history.course = Course { lease_ms: 2_000, tenants: vec!["a".into(), "b".into()], ..Course::default() };
        it.windows =
            vec![Window { fault: "kill".into(), target: "orders-0".into(), from_ms: 500, until_ms: Some(900) }];
        let bought = it.place("a", "k1", 2);
        it.pay("a", "k2", &bought, "approved");
        it.check_in("a", "k3", &bought);
        let declined = it.place("a", "k4", 1);
        it.pay("a", "k5", &declined, "declined");
        it.cancel("a", "k6", &declined);
        let confirmed = it.place("a", "k7", 1);
        it.confirm("a", "k8", &confirmed);
        let returned = it.place("b", "k1", 3);
        it.pay("b", "k2", &returned, "approved");
        it.cancel("b", "k9", &returned);
        it.read("a", &bought);
        it.read("b", &returned);
        it.history.controls.push(Control { ms: it.now, deed: Deed::Forge, target: "evt_x".into(), status: Some(401) });
        it.settle_books();
        it
    }

    /// What all rules say.
    pub(super) fn violations(&self) -> Vec<Violation> {
        check(&self.history, &self.ledger, &self.windows)
    }

    /// What one rule says.
    pub(super) fn broken(&self, rule: fn(&Case<'_>) -> Vec<Violation>) -> Vec<String> {
        let case = Case::new(&self.history, &self.ledger, &self.windows);
        rule(&case).into_iter().map(|violation| violation.what).collect()
    }

    // === what to break ===

    /// The answer to the nth request under tenant `a`'s key: executed, replayed, swept.
    pub(super) fn heard(&mut self, key: &str, place: usize) -> &mut Answer {
        let mut calls =
            self.history.calls.iter_mut().filter(|call| call.tenant == "a" && call.key.as_deref() == Some(key));
        match &mut calls.nth(place).expect("a call").heard {
            Some(Heard::Answer(answer)) => answer,
            other => panic!("{other:?} is no answer"),
        }
    }

    /// The idempotency database's row of tenant `a`'s key.
    pub(super) fn key_row(&mut self, key: &str) -> &mut KeyRow {
        self.ledger.keys.iter_mut().find(|row| row.scope == "rest/a" && row.key == key).expect("a row")
    }

    /// The order that tenant `a`'s key placed.
    pub(super) fn order_row(&mut self, key: &str) -> &mut OrderRow {
        let id = derive::order(&self.key_row(key).operation.clone()).expect("an operation id");
        self.ledger.orders.iter_mut().find(|row| row.id == id).expect("an order")
    }

    /// The payment that tenant `a`'s key made.
    pub(super) fn payment_row(&mut self, key: &str) -> &mut PaymentRow {
        let id = self.payment_id(key);
        self.ledger.payments.iter_mut().find(|row| row.id == id).expect("a payment")
    }

    /// The same, as the acquirer has it.
    pub(super) fn charge(&mut self, key: &str) -> &mut AcquirerPayment {
        let id = self.payment_id(key);
        self.ledger.acquirer.get_mut(&id).expect("a payment at the acquirer")
    }

    pub(super) fn payment_id(&mut self, key: &str) -> String {
        derive::payment(&self.key_row(key).operation.clone()).expect("an operation id")
    }

    /// The request of tenant `a`'s key was sent once more before it was ever answered.
    pub(super) fn early(&mut self, key: &str, answer: Answer) {
        self.again(key, 1, answer);
    }

    /// The request of tenant `a`'s key was sent once more at the end.
    pub(super) fn late(&mut self, key: &str, answer: Answer) {
        self.now += 10;
        let now = self.now;
        self.again(key, now, answer);
    }

    fn again(&mut self, key: &str, sent_ms: u64, answer: Answer) {
        let first = self.history.calls.iter().find(|call| call.tenant == "a" && call.key.as_deref() == Some(key));
        let first = first.expect("a call").clone();
        let id = self.number();
        let heard = Some(Heard::Answer(answer));
        let call = Call { id, purpose: Purpose::Retry, sent_ms, done_ms: Some(sent_ms + 5), heard, ..first };
        let at = self.history.calls.iter().position(|it| it.sent_ms > sent_ms).unwrap_or(self.history.calls.len());
        self.history.calls.insert(at, call);
    }

    /// An unkeyed request that was sent and answered now.
    pub(super) fn sent(&mut self, tenant: &str, method: &str, path: &str, answer: Answer) -> &mut Call {
        self.now += 10;
        let sent_ms = self.now;
        let id = self.number();
        self.history.calls.push(Call {
            key: None,
            tenant: tenant.into(),
            method: method.into(),
            path: path.into(),
            done_ms: Some(sent_ms + 5),
            heard: Some(Heard::Answer(answer)),
            ..call(id, "", sent_ms)
        });
        self.history.calls.last_mut().expect("it was just pushed")
    }

    // === what happens ===

    fn place(&mut self, tenant: &str, key: &str, seats: u32) -> String {
        let operation = self.operation();
        let id = derive::order(&operation).expect("an operation id");
        let total = PRICE * i64::from(seats);
        let tickets: Vec<String> = (0..seats).map(|at| derive::ticket(&id, at).expect("an order id")).collect();
        let shown: Vec<String> =
            tickets.iter().map(|ticket| format!(r#"{{"id":"{ticket}","ticketTypeId":"t","status":"held"}}"#)).collect();
        let mut answer = json(
            201,
            &format!(
                r#"{{"id":"{id}","status":"pending","venueId":"v","items":[{{"ticketTypeId":"t","quantity":{seats},"unitPrice":{{"amount":{PRICE},"currency":"EUR"}}}}],"tickets":[{}],"total":{{"amount":{total},"currency":"EUR"}},"createdAt":"{USED_AT}","holdExpiresAt":"{USED_AT}"}}"#,
                shown.join(",")
            ),
        );
        answer.headers.insert("location".into(), format!("/v1/orders/{id}"));
        let body = format!(r#"{{"venueId":"v","items":[{{"ticketTypeId":"t","quantity":{seats}}}]}}"#);
        self.keyed(tenant, key, Kind::Place, "/v1/orders", &body, answer, &operation);
        self.ledger.orders.push(OrderRow {
            id: id.clone(),
            tenant: tenant.into(),
            venue: "v".into(),
            status: "pending".into(),
            total,
            currency: "EUR".into(),
            paid_by: None,
            items: vec![("t".into(), i64::from(seats), PRICE)],
            tickets: tickets.into_iter().map(|ticket| (ticket, None)).collect(),
        });
        id
    }

    fn pay(&mut self, tenant: &str, key: &str, order: &str, status: &str) {
        let operation = self.operation();
        let id = derive::payment(&operation).expect("an operation id");
        let row = self.ledger.orders.iter_mut().find(|row| row.id == order).expect("an order");
        let amount = row.total;
        let is_approved = status == "approved";
        let answer = if is_approved {
            row.status = "paid".into();
            row.paid_by = Some(id.clone());
            let mut answer = json(
                201,
                &format!(
                    r#"{{"id":"{id}","orderId":"{order}","status":"approved","amount":{amount},"currency":"EUR"}}"#
                ),
            );
            answer.headers.insert("location".into(), format!("/v1/payments/{id}"));
            answer
        } else {
            problem(402, "payment_declined", "")
        };
        let body = format!(r#"{{"orderId":"{order}","paymentMethod":"pm_{status}"}}"#);
        self.keyed(tenant, key, Kind::Pay, "/v1/payments", &body, answer, &operation);
        self.ledger.payments.push(PaymentRow {
            id: id.clone(),
            operation,
            tenant: tenant.into(),
            order: order.into(),
            amount,
            currency: "EUR".into(),
            status: status.into(),
            is_watched: false,
        });
        let charges = i64::from(is_approved);
        let payment =
            AcquirerPayment { status: status.into(), amount, currency: "EUR".into(), charges, refunds: vec![] };
        self.ledger.acquirer.insert(id, payment);
    }

    fn cancel(&mut self, tenant: &str, key: &str, order: &str) {
        let operation = self.operation();
        let row = self.ledger.orders.iter_mut().find(|row| row.id == order).expect("an order");
        let total = row.total;
        let status = if let Some(payment) = row.paid_by.clone() {
            row.status = "refunded".into();
            let paid = self.ledger.payments.iter_mut().find(|row| row.id == payment).expect("a payment");
            paid.status = "refunded".into();
            let refund = derive::refund(&paid.operation).expect("an operation id");
            self.ledger.acquirer.get_mut(&payment).expect("a charge").refunds.push((refund.clone(), total));
            self.ledger.refunds.push(RefundRow { id: refund, payment, amount: total, is_acknowledged: true });
            "refund_pending"
        } else {
            row.status = "cancelled".into();
            "cancelled"
        };
        let answer = self.order_answer(order, status);
        self.keyed(tenant, key, Kind::Cancel, &format!("/v1/orders/{order}/cancel"), "", answer, &operation);
    }

    fn confirm(&mut self, tenant: &str, key: &str, order: &str) {
        let operation = self.operation();
        let row = self.ledger.orders.iter_mut().find(|row| row.id == order).expect("an order");
        row.status = "paid".into();
        let answer = self.order_answer(order, "paid");
        self.keyed(tenant, key, Kind::Confirm, &format!("/v1/orders/{order}/confirm"), "", answer, &operation);
    }

    fn check_in(&mut self, tenant: &str, key: &str, order: &str) {
        let operation = self.operation();
        let row = self.ledger.orders.iter_mut().find(|row| row.id == order).expect("an order");
        row.tickets[0].1 = Some(1_767_323_045_678_901);
        let ticket = row.tickets[0].0.clone();
        let answer = json(200, &format!(r#"{{"ticketId":"{ticket}","alreadyUsed":false,"usedAt":"{USED_AT}"}}"#));
        self.keyed(tenant, key, Kind::CheckIn, &format!("/v1/tickets/{ticket}/check-in"), "", answer, &operation);
    }

    fn read(&mut self, tenant: &str, order: &str) {
        let status = self.ledger.orders.iter().find(|row| row.id == order).expect("an order").status.clone();
        let answer = self.order_answer(order, &status);
        self.sent(tenant, "GET", &format!("/v1/orders/{order}"), answer).purpose = Purpose::Read;
    }

    pub(super) fn order_answer(&self, order: &str, status: &str) -> Answer {
        let row = self.ledger.orders.iter().find(|row| row.id == order).expect("an order");
        let (ticket_type, quantity, price) = &row.items[0];
        json(
            200,
            &format!(
                r#"{{"id":"{order}","status":"{status}","venueId":"v","items":[{{"ticketTypeId":"{ticket_type}","quantity":{quantity},"unitPrice":{{"amount":{price},"currency":"EUR"}}}}],"tickets":[],"total":{{"amount":{},"currency":"EUR"}},"createdAt":"{USED_AT}","holdExpiresAt":"{USED_AT}"}}"#,
                row.total
            ),
        )
    }

    #[allow(clippy::too_many_arguments, reason = "each is a part of one keyed request and its row")]
    fn keyed(&mut self, tenant: &str, key: &str, kind: Kind, path: &str, body: &str, answer: Answer, operation: &str) {
        let mut answer = answer;
        answer.headers.insert("idempotency-key".into(), key.into());
        answer.headers.insert("idempotency-key-expires".into(), "Sat, 03 Jan 2026 03:04:05 GMT".into());
        let mut replay = answer.clone();
        replay.headers.insert("idempotent-replayed".into(), "true".into());
        let intent = IntentId(self.number());
        for (purpose, heard) in
            [(Purpose::First, answer.clone()), (Purpose::LateRetry, replay.clone()), (Purpose::Sweep, replay)]
        {
            self.now += 10;
            let sent_ms = if purpose == Purpose::Sweep { 50_000 + self.now } else { self.now };
            let id = self.number();
            self.history.calls.push(Call {
                intent: Some(intent),
                purpose,
                tenant: tenant.into(),
                path: path.into(),
                body: body.into(),
                done_ms: Some(sent_ms + 5),
                heard: Some(Heard::Answer(heard)),
                ..call(id, key, sent_ms)
            });
        }
        self.history.intents.insert(
            intent,
            Intent {
                id: intent,
                buyer: 1,
                kind,
                tenant: tenant.into(),
                key: Some(key.into()),
                path: path.into(),
                body: body.into(),
                ended: Some((self.now, How::Final)),
            },
        );
        self.ledger.keys.push(KeyRow {
            scope: format!("rest/{tenant}"),
            key: key.into(),
            operation: operation.into(),
            token: 1,
            state: "completed".into(),
            attempts: 1,
            status: Some(answer.status.into()),
            body: Some(answer.body),
        });
        let word = match kind {
            Kind::Place => "place_order",
            Kind::Pay => "pay",
            Kind::Confirm => "confirm_order",
            Kind::Cancel => "cancel_order",
            Kind::CheckIn => "check_in_ticket",
        };
        self.ledger.operations.push(OperationRow {
            id: operation.into(),
            tenant: Some(tenant.into()),
            kind: Some(word.into()),
            token: 1,
            answered_token: Some(1),
            label: Some("final".into()),
        });
        for (store, name, state) in [
            (TokenStore::Orders, operation.to_owned(), "final"),
            (TokenStore::Idem, format!("rest/{tenant} {key}"), "completed"),
        ] {
            let (ms, operation, state) = (self.now, operation.to_owned(), state.to_owned());
            self.history.tokens.push(TokenSample { ms, store, name, operation, token: 1, state });
        }
    }

    /// What follows from the orders: stock, totals, samples, the end.
    fn settle_books(&mut self) {
        self.history.calls.sort_by_key(|call| call.sent_ms);
        let seats = |status: &str| -> i64 {
            self.ledger.orders.iter().filter(|row| row.status == status).map(|row| row.items[0].1).sum()
        };
        let (sold, held) = (seats("paid"), seats("pending"));
        self.ledger.ticket_types.push(TypeRow { id: "t".into(), capacity: 100, sold, held });
        let sample = TypeSample { id: "t".into(), capacity: 100, sold, held, orders: Some((sold, held)) };
        self.history.stock.push(StockSample { ms: self.now, types: vec![sample] });
        let charges = self.ledger.acquirer.values();
        self.ledger.totals = Totals {
            charges: charges.clone().map(|it| it.charges).sum(),
            captured: charges.clone().map(|it| it.charges * it.amount).sum(),
            refunded: charges.flat_map(|it| it.refunds.iter().map(|(_, amount)| *amount)).sum(),
        };
        self.history.course.faults_stopped_ms = Some(40_000);
        self.history.course.sweep_began_ms = Some(50_000);
        self.ledger.read_ms = 60_000;
        self.now = 58_000;
    }

    fn operation(&mut self) -> String {
        let number = self.number();
        format!("00000000-0000-4000-8000-{number:012}")
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The key of tenant `a`.
pub(super) fn key(key: &str) -> KeyId {
    KeyId { tenant: "a".into(), key: key.into() }
}
