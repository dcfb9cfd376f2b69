//! A small campaign in which everything is right, to be broken one thing at a time.

mod deeds;

use std::collections::BTreeMap;

use super::{Case, Violation, check, derive};
use crate::{
    edge::Window,
    history::{Answer, Call, Control, Course, Deed, Heard, History, Purpose},
    ledger::{AcquirerPayment, KeyRow, Ledger, OrderRow, PaymentRow},
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
}
