//! History and ledger, indexed by what the rules ask for.

use std::collections::{BTreeMap, HashMap};

use super::violation::KeyId;
use crate::{
    edge::Window,
    history::{Call, History},
    ledger::{KeyRow, Ledger, OperationRow, OrderRow, PaymentRow, RefundRow},
};

/// How long after a fault's window its consequences may still be felt at the edge: connections are made anew after pauses of up to
/// a few seconds, and requests that waited for an answer end.
pub const GRACE_MS: u64 = 5_000;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route<'p> {
    /// `POST /v1/orders`
    Place,
    /// `POST /v1/payments`
    Pay,
    /// `POST /v1/orders/{id}/confirm`
    Confirm(&'p str),
    /// `POST /v1/orders/{id}/cancel`
    Cancel(&'p str),
    /// `POST /v1/orders/{id}/payment-link`
    Link(&'p str),
    /// `POST /v1/tickets/{id}/check-in`
    CheckIn(&'p str),
    /// `GET /v1/orders/{id}`
    Order(&'p str),
    /// `GET /v1/payments/{id}`
    Payment(&'p str),
    /// `GET /v1/ticket-types/{id}`
    TicketType(&'p str),
    /// `GET /v1/idempotency-keys/{key}`, the key percent-encoded
    Key(&'p str),
    /// Anything else.
    Other,
}

/// Everything there is to judge.
pub struct Case<'c> {
    /// What the buyers saw.
    pub history: &'c History,
    /// What is left.
    pub ledger: &'c Ledger,
    /// When which fault was at work.
    pub windows: &'c [Window],
    /// The keyed requests, by key, in the order in which they were sent.
    pub keyed: BTreeMap<KeyId, Vec<&'c Call>>,
    /// The idempotency database's rows.
    pub keys: HashMap<KeyId, &'c KeyRow>,
    /// The orders database's operations, by id.
    pub operations: HashMap<&'c str, &'c OperationRow>,
    /// Its orders, by id.
    pub orders: HashMap<&'c str, &'c OrderRow>,
    /// Its payments, by id.
    pub payments: HashMap<&'c str, &'c PaymentRow>,
    /// Its refunds, by the payment that goes back.
    pub refunds: HashMap<&'c str, &'c RefundRow>,
    /// Its tickets, by id: their order, and when they were used.
    pub tickets: HashMap<&'c str, (&'c OrderRow, Option<i64>)>,
}

impl<'c> Case<'c> {
    /// Indexes what there is.
    pub fn new(history: &'c History, ledger: &'c Ledger, windows: &'c [Window]) -> Self {
        let mut keyed = BTreeMap::<KeyId, Vec<&Call>>::new();
        for call in &history.calls {
            if let Some(key) = key_of(call) {
                keyed.entry(key).or_default().push(call);
            }
        }
        Self {
            history,
            ledger,
            windows,
            keyed,
            keys: ledger.keys.iter().map(|row| (row.id(), row)).collect(),
            operations: ledger.operations.iter().map(|row| (row.id.as_str(), row)).collect(),
            orders: ledger.orders.iter().map(|row| (row.id.as_str(), row)).collect(),
            payments: ledger.payments.iter().map(|row| (row.id.as_str(), row)).collect(),
            refunds: ledger.refunds.iter().map(|row| (row.payment.as_str(), row)).collect(),
            tickets: ledger
                .orders
                .iter()
                .flat_map(|row| row.tickets.iter().map(move |(id, used_at)| (id.as_str(), (row, *used_at))))
                .collect(),
        }
    }

    /// The operation of a key.
    pub fn operation(&self, key: &KeyId) -> Option<&'c str> {
        self.keys.get(key).map(|row| row.operation.as_str())
    }

    /// Was a fault at work, or just over, that can be felt at this gateway between these moments?
    pub fn is_excused(&self, gateway: usize, from_ms: u64, until_ms: u64) -> bool {
        self.windows.iter().any(|window| {
            window.may_fail_requests()
                && window.overlaps(from_ms.saturating_sub(GRACE_MS), until_ms)
                && !is_of_another_gateway(&window.target, gateway)
        })
    }
}

/// The key of a request, on the routes that heed it.
pub fn key_of(call: &Call) -> Option<KeyId> {
    let key = call.key.clone()?;
    (!matches!(Route::of(call), Route::Link(_))).then(|| KeyId { tenant: call.tenant.clone(), key })
}

/// A key as it stands in a path: everything but letters and digits percent-encoded.
pub fn encoded(key: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    key.bytes().map(byte).collect()
}

/// What is done to one gateway, or to a road that begins or ends there, is not felt at another.
fn is_of_another_gateway(target: &str, gateway: usize) -> bool {
    let mut numbers = target.split("gateway-").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<usize>().ok()
    });
    numbers.next().is_some_and(|first| first != gateway && numbers.all(|number| number != gateway))
}

impl<'p> Route<'p> {
    /// Reads method and path.
    pub fn of(call: &'p Call) -> Self {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.method.as_str(), &parts[..]) {
            ("POST", ["v1", "orders"]) => Self::Place,
            ("POST", ["v1", "payments"]) => Self::Pay,
            ("POST", ["v1", "orders", id, "confirm"]) => Self::Confirm(id),
            ("POST", ["v1", "orders", id, "cancel"]) => Self::Cancel(id),
            ("POST", ["v1", "orders", id, "payment-link"]) => Self::Link(id),
            ("POST", ["v1", "tickets", id, "check-in"]) => Self::CheckIn(id),
            ("GET", ["v1", "orders", id]) => Self::Order(id),
            ("GET", ["v1", "payments", id]) => Self::Payment(id),
            ("GET", ["v1", "ticket-types", id]) => Self::TicketType(id),
            ("GET", ["v1", "idempotency-keys", key]) => Self::Key(key),
            _ => Self::Other,
        }
    }

    /// The kind of operation that the orders service keeps for it.
    pub fn operation_kind(self) -> Option<&'static str> {
        Some(match self {
            Self::Place => "place_order",
            Self::Pay => "pay",
            Self::Confirm(_) => "confirm_order",
            Self::Cancel(_) => "cancel_order",
            Self::CheckIn(_) => "check_in_ticket",
            Self::Link(_) | Self::Order(_) | Self::Payment(_) | Self::TicketType(_) | Self::Key(_) | Self::Other => {
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_can_stand_in_a_path() {
        assert_eq!(encoded("a/b cé7"), "a%2Fb%20c%C3%A97");
    }

    #[test]
    fn only_faults_that_a_gateway_can_feel_excuse_it() {
        let window =
            |target: &str| Window { fault: "cut".into(), target: target.into(), from_ms: 1_000, until_ms: Some(2_000) };
        let (history, ledger) = (History::default(), Ledger::default());
        for (target, felt_at_0, felt_at_1) in [
            ("gateway-0", true, false),
            ("gateway-1-idem-0", false, true),
            ("orders-1", true, true),
            ("store", true, true),
        ] {
            let windows = [window(target)];
            let case = Case::new(&history, &ledger, &windows);
            assert_eq!((case.is_excused(0, 1_500, 1_600), case.is_excused(1, 1_500, 1_600)), (felt_at_0, felt_at_1));
            assert!(!case.is_excused(0, 2_001 + GRACE_MS, 9_000), "{target}");
            assert!(!case.is_excused(0, 0, 999), "{target}");
        }
    }
}
