//! Every id that follows from an operation id, derived here once more from what was published: a UUIDv5 over the sixteen bytes
//! of the operation id, in a namespace for each kind of id.

use uuid::Uuid;

const ORDERS: &str = "6f1d3c52-9b1e-4a77-8a0f-2d8e51c30a01";
const PAYMENTS: &str = "6f1d3c52-9b1e-4a77-8a0f-2d8e51c30a02";
const REFUNDS: &str = "6f1d3c52-9b1e-4a77-8a0f-2d8e51c30a03";
const TICKETS: &str = "6f1d3c52-9b1e-4a77-8a0f-2d8e51c30a04";

/// The order that an operation places; none when the text is no operation id.
pub fn order(operation: &str) -> Option<String> {
    name(ORDERS, Uuid::try_parse(operation).ok()?.as_bytes())
}

/// The payment that an operation makes.
pub fn payment(operation: &str) -> Option<String> {
    name(PAYMENTS, Uuid::try_parse(operation).ok()?.as_bytes())
}

/// The refund of the payment that an operation made.
pub fn refund(operation: &str) -> Option<String> {
    name(REFUNDS, Uuid::try_parse(operation).ok()?.as_bytes())
}

/// The ticket of an order's seat, counted from zero through the whole order.
pub fn ticket(order: &str, position: u32) -> Option<String> {
    let mut bytes = Uuid::try_parse(order).ok()?.as_bytes().to_vec();
    bytes.extend_from_slice(&position.to_be_bytes());
    name(TICKETS, &bytes)
}

fn name(namespace: &str, bytes: &[u8]) -> Option<String> {
    let namespace = Uuid::try_parse(namespace).expect("the namespaces are UUIDs");
    Some(Uuid::new_v5(&namespace, bytes).hyphenated().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vectors: operation, order, payment, refund, first and fiftieth ticket.
    const VECTORS: [[&str; 6]; 2] = [
        [
            "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11",
            "9d459477-9c2e-593f-909b-eb13578767b0",
            "b53fa452-4f75-5e80-a5dd-9e73c8c35518",
            "ba982275-eca5-5e65-bdd1-8c545ea5378d",
            "e9eb3c9c-592d-5c16-b02b-a644deacb04d",
            "3f0726a3-7ea0-5741-b39f-ab318ace8219",
        ],
        [
            "00000000-0000-0000-0000-000000000000",
            "258994ee-a52d-54e5-a65d-a78f06f66dfa",
            "19a2168c-9968-5d72-9885-0e18b24ebdc2",
            "81a36aa8-305d-5378-af3e-fbbb59d4ae3e",
            "01cdc852-30c2-5e07-96df-7beb06d1b236",
            "779ef58c-6b2b-589d-86b3-f3ac089ebe9d",
        ],
    ];

    #[test]
    fn ids_are_those_that_were_published() {
        for [operation, order_id, payment_id, refund_id, first, fiftieth] in VECTORS {
            assert_eq!(order(operation).as_deref(), Some(order_id));
            assert_eq!(payment(operation).as_deref(), Some(payment_id));
            assert_eq!(refund(operation).as_deref(), Some(refund_id));
            assert_eq!(ticket(order_id, 0).as_deref(), Some(first));
            assert_eq!(ticket(order_id, 49).as_deref(), Some(fiftieth));
        }
        assert_eq!(order("no operation"), None);
    }
}
