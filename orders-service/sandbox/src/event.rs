//! What the acquirer tells its merchant: a payment was approved, or it was declined.

use std::time::SystemTime;

use bytes::Bytes;
use chassis::clock;
use serde::Serialize;
use uuid::Uuid;

use crate::ledger::{Charge, Decision};

/// One decision about one payment. Its body is made once, so that every delivery carries the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) body: Bytes,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    id: &'a str,
    r#type: &'a str,
    payment_id: &'a str,
    amount: u64,
    currency: &'a str,
    occurred_at: String,
}

// === impl Event ===

impl Event {
    pub(crate) fn new(payment_id: &str, charge: &Charge, decision: Decision, occurred_at: SystemTime) -> Self {
        let id = format!("evt_{}", Uuid::new_v4().simple());
        let body = Body {
            id: &id,
            r#type: match decision {
                Decision::Approved => "payment.approved",
                Decision::Declined => "payment.declined",
            },
            payment_id,
            amount: charge.amount,
            currency: &charge.currency,
            occurred_at: clock::format_rfc3339(occurred_at),
        };
        let body = serde_json::to_vec(&body).expect("strings and numbers always serialise");
        Event { id, body: body.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;
    use crate::method::Method;

    #[test]
    fn body_names_the_decision_the_payment_and_the_moment() {
        let charge = Charge { amount: 2000, currency: "EUR".into(), method: Method::Approved };
        let at = UNIX_EPOCH + Duration::from_millis(1_500);
        let event = Event::new("p1", &charge, Decision::Declined, at);
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        let expected = json!({"id": event.id, "type": "payment.declined", "paymentId": "p1", "amount": 2000,
            "currency": "EUR", "occurredAt": "1970-01-01T00:00:01.500Z"});
        assert_eq!(body, expected);
    }
}
