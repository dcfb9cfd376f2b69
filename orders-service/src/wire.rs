//! Proto ⇄ domain, the only place.

use idem_proto::orders::v1 as proto;
use prost::Message as _;

use crate::{
    money::{Currency, Money},
    operation_id::{OrderId, PaymentId, TicketId},
    order::{Item, Order, OrderStatus, Ticket, TicketStatus},
    outcome::{Answer, CheckIn, Kind, Label, Outcome, Refusal, RefusalReason},
    payment::{Payment, PaymentStatus},
    stock::TicketType,
    timestamp::Timestamp,
};

/// A kept result that cannot be read back: written by a newer release, or damaged.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the kept result cannot be read: {0}")]
pub struct Unreadable(&'static str);

/// The bytes that are kept beside an operation. They are what is answered for as long as the operation is known, so a change to the
/// meaning of an existing field of `Result` would change answers already given.
pub fn encode(kind: Kind, outcome: &Outcome) -> Vec<u8> {
    result(kind, outcome).encode_to_vec()
}

/// Reads the bytes kept beside an operation.
pub fn decode(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let kept = proto::Result::decode(bytes).map_err(|_| Unreadable("it is not a result"))?;
    outcome(kept).ok_or(Unreadable("it has a value this release does not know"))
}

/// An answer as it travels.
pub fn answer(kind: Kind, answer: &Answer) -> proto::Answer {
    proto::Answer {
        label: label(answer.label).into(),
        result: answer.outcome.as_ref().map(|outcome| result(kind, outcome)),
        replayed: answer.is_replay,
    }
}

/// A label as it travels.
pub fn label(label: Label) -> proto::Label {
    match label {
        Label::Final => proto::Label::Final,
        Label::NoEffect => proto::Label::NoEffect,
        Label::Unknown => proto::Label::Unknown,
    }
}

/// An outcome as it travels and as it is kept.
pub fn result(kind: Kind, outcome: &Outcome) -> proto::Result {
    use proto::result::Kind as Value;
    let value = match outcome {
        Outcome::Order(value) => Value::Order(order(value)),
        Outcome::Payment(value) => Value::Payment(payment(value)),
        Outcome::CheckIn(value) => Value::CheckIn(proto::CheckIn {
            ticket_id: value.ticket.to_string(),
            already_used: value.is_already_used,
            used_at: Some(timestamp(value.used_at)),
        }),
        Outcome::Refused(value) => Value::Refusal(refusal(value)),
    };
    proto::Result { operation: operation_kind(kind).into(), kind: Some(value) }
}

/// A ticket type as it travels.
pub fn ticket_type(value: &TicketType) -> proto::TicketType {
    proto::TicketType {
        id: value.id.clone(),
        venue_id: value.venue.clone(),
        name: value.name.clone(),
        price: Some(money(&value.price)),
        capacity: value.capacity,
        sold: value.sold,
        held: value.held,
        available: value.capacity - value.sold - value.held,
    }
}

/// An order as it travels.
pub fn order(value: &Order) -> proto::Order {
    proto::Order {
        id: value.id.to_string(),
        status: order_status(value.status).into(),
        venue_id: value.venue.clone(),
        items: value.items.iter().map(item).collect(),
        tickets: value.tickets.iter().map(ticket).collect(),
        total: Some(money(&value.total)),
        created_at: Some(timestamp(value.created_at)),
        hold_expires_at: Some(timestamp(value.hold_expires_at)),
    }
}

/// A payment as it travels.
pub fn payment(value: &Payment) -> proto::Payment {
    let status = match value.status {
        PaymentStatus::Started | PaymentStatus::Pending | PaymentStatus::Closed => proto::PaymentStatus::Pending,
        PaymentStatus::Approved => proto::PaymentStatus::Approved,
        PaymentStatus::Declined => proto::PaymentStatus::Declined,
        PaymentStatus::RefundPending => proto::PaymentStatus::RefundPending,
        PaymentStatus::Refunded => proto::PaymentStatus::Refunded,
    };
    proto::Payment {
        id: value.id.to_string(),
        order_id: value.order.to_string(),
        status: status.into(),
        amount: Some(money(&value.amount)),
    }
}

/// A refusal as it travels.
pub fn refusal(value: &Refusal) -> proto::Refusal {
    proto::Refusal { reason: reason(value.reason).into(), detail: value.detail.clone() }
}

/// Money as it travels.
pub fn money(value: &Money) -> proto::Money {
    proto::Money { amount: value.amount, currency: value.currency.as_str().to_owned() }
}

/// A moment as it travels.
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.0.div_euclid(1_000_000),
        nanos: i32::try_from(at.0.rem_euclid(1_000_000) * 1000).expect("less than a second in nanoseconds"),
    }
}

fn operation_kind(kind: Kind) -> proto::OperationKind {
    match kind {
        Kind::PlaceOrder => proto::OperationKind::PlaceOrder,
        Kind::Pay => proto::OperationKind::Pay,
        Kind::ConfirmOrder => proto::OperationKind::ConfirmOrder,
        Kind::CancelOrder => proto::OperationKind::CancelOrder,
        Kind::CheckInTicket => proto::OperationKind::CheckInTicket,
    }
}

fn item(value: &Item) -> proto::OrderItem {
    proto::OrderItem {
        ticket_type_id: value.ticket_type.clone(),
        quantity: value.quantity,
        unit_price: Some(money(&value.unit_price)),
    }
}

fn ticket(value: &Ticket) -> proto::Ticket {
    let status = match value.status {
        TicketStatus::Held => proto::TicketStatus::Held,
        TicketStatus::Valid => proto::TicketStatus::Valid,
        TicketStatus::Used => proto::TicketStatus::Used,
        TicketStatus::Void => proto::TicketStatus::Void,
    };
    proto::Ticket { id: value.id.to_string(), ticket_type_id: value.ticket_type.clone(), status: status.into() }
}

fn order_status(status: OrderStatus) -> proto::OrderStatus {
    match status {
        OrderStatus::Pending => proto::OrderStatus::Pending,
        OrderStatus::Paid => proto::OrderStatus::Paid,
        OrderStatus::Cancelled => proto::OrderStatus::Cancelled,
        OrderStatus::Expired => proto::OrderStatus::Expired,
        OrderStatus::RefundPending => proto::OrderStatus::RefundPending,
        OrderStatus::Refunded => proto::OrderStatus::Refunded,
    }
}

fn reason(reason: RefusalReason) -> proto::RefusalReason {
    match reason {
        RefusalReason::NotFound => proto::RefusalReason::NotFound,
        RefusalReason::SoldOut => proto::RefusalReason::SoldOut,
        RefusalReason::Invalid => proto::RefusalReason::Invalid,
        RefusalReason::NotPending => proto::RefusalReason::NotPending,
        RefusalReason::NotCancellable => proto::RefusalReason::NotCancellable,
        RefusalReason::NotPaid => proto::RefusalReason::NotPaid,
        RefusalReason::CapacityInUse => proto::RefusalReason::CapacityInUse,
        RefusalReason::PaymentInProgress => proto::RefusalReason::PaymentInProgress,
        RefusalReason::PaymentDeclined => proto::RefusalReason::PaymentDeclined,
        RefusalReason::HoldExpiredNotCharged => proto::RefusalReason::HoldExpiredNotCharged,
        RefusalReason::HoldExpiredRefunded => proto::RefusalReason::HoldExpiredRefunded,
        RefusalReason::PaymentRefunded => proto::RefusalReason::PaymentRefunded,
        RefusalReason::NotPendingRefunded => proto::RefusalReason::NotPendingRefunded,
    }
}

// === back ===

fn outcome(kept: proto::Result) -> Option<Outcome> {
    use proto::result::Kind as Value;
    Some(match kept.kind? {
        Value::Order(value) => Outcome::Order(order_back(value)?),
        Value::Payment(value) => Outcome::Payment(payment_back(value)?),
        Value::CheckIn(value) => Outcome::CheckIn(CheckIn {
            ticket: TicketId::parse(&value.ticket_id)?,
            is_already_used: value.already_used,
            used_at: timestamp_back(value.used_at?)?,
        }),
        Value::Refusal(value) => {
            Outcome::Refused(Refusal { reason: reason_back(value.reason())?, detail: value.detail })
        }
    })
}

fn order_back(value: proto::Order) -> Option<Order> {
    Some(Order {
        id: OrderId::parse(&value.id)?,
        status: OrderStatus::ALL.into_iter().find(|status| order_status(*status) == value.status())?,
        items: value.items.into_iter().map(item_back).collect::<Option<_>>()?,
        tickets: value.tickets.into_iter().map(ticket_back).collect::<Option<_>>()?,
        total: money_back(value.total?)?,
        created_at: timestamp_back(value.created_at?)?,
        hold_expires_at: timestamp_back(value.hold_expires_at?)?,
        venue: value.venue_id,
    })
}

fn item_back(value: proto::OrderItem) -> Option<Item> {
    Some(Item {
        ticket_type: value.ticket_type_id,
        quantity: value.quantity,
        unit_price: money_back(value.unit_price?)?,
    })
}

fn ticket_back(value: proto::Ticket) -> Option<Ticket> {
    let status = match value.status() {
        proto::TicketStatus::Held => TicketStatus::Held,
        proto::TicketStatus::Valid => TicketStatus::Valid,
        proto::TicketStatus::Used => TicketStatus::Used,
        proto::TicketStatus::Void => TicketStatus::Void,
        proto::TicketStatus::Unspecified => return None,
    };
    Some(Ticket { id: TicketId::parse(&value.id)?, ticket_type: value.ticket_type_id, status })
}

fn payment_back(value: proto::Payment) -> Option<Payment> {
    let status = match value.status() {
        proto::PaymentStatus::Pending => PaymentStatus::Pending,
        proto::PaymentStatus::Approved => PaymentStatus::Approved,
        proto::PaymentStatus::Declined => PaymentStatus::Declined,
        proto::PaymentStatus::RefundPending => PaymentStatus::RefundPending,
        proto::PaymentStatus::Refunded => PaymentStatus::Refunded,
        proto::PaymentStatus::Unspecified => return None,
    };
    Some(Payment {
        id: PaymentId::parse(&value.id)?,
        order: OrderId::parse(&value.order_id)?,
        status,
        amount: money_back(value.amount?)?,
    })
}

/// Money as it came, when it is money: an amount that is not negative, in a currency.
pub fn money_back(value: proto::Money) -> Option<Money> {
    (value.amount >= 0).then_some(())?;
    Some(Money { amount: value.amount, currency: Currency::new(&value.currency)? })
}

fn timestamp_back(value: prost_types::Timestamp) -> Option<Timestamp> {
    let micros = value.seconds.checked_mul(1_000_000)?.checked_add(i64::from(value.nanos) / 1000)?;
    Some(Timestamp(micros))
}

fn reason_back(value: proto::RefusalReason) -> Option<RefusalReason> {
    RefusalReason::ALL.into_iter().find(|known| reason(*known) == value)
}

/// What a keyed mutation asks, without who asks: equal digests are the same request.
pub fn request_digest(request: &impl prost::Message) -> Vec<u8> {
    use sha2::Digest as _;
    sha2::Sha256::digest(request.encode_to_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation_id::OperationId;

    fn eur(amount: i64) -> Money {
        Money { amount, currency: Currency::new("EUR").expect("three capitals") }
    }

    #[test]
    fn a_kept_result_reads_back_as_it_was() {
        let operation = OperationId::parse("0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11").expect("a UUID");
        let id = operation.order();
        let order = Order {
            id,
            status: OrderStatus::Cancelled,
            venue: "demo".to_owned(),
            items: vec![Item { ticket_type: "general".to_owned(), quantity: 2, unit_price: eur(1000) }],
            tickets: [TicketStatus::Held, TicketStatus::Valid, TicketStatus::Used, TicketStatus::Void]
                .into_iter()
                .zip(0..)
                .map(|(status, at)| Ticket { id: id.ticket(at), ticket_type: "general".to_owned(), status })
                .collect(),
            total: eur(2000),
            created_at: Timestamp(1_700_000_000_123_456),
            hold_expires_at: Timestamp(1_700_001_800_123_456),
        };
        let payment =
            Payment { id: operation.payment(), order: id, status: PaymentStatus::Approved, amount: eur(2000) };
        let check_in = CheckIn { ticket: id.ticket(0), is_already_used: true, used_at: Timestamp(-1_500_001) };
        let mut outcomes = vec![Outcome::Order(order), Outcome::Payment(payment), Outcome::CheckIn(check_in)];
        outcomes.extend(RefusalReason::ALL.map(|reason| Outcome::Refused(reason.plain())));
        for outcome in outcomes {
            for kind in Kind::ALL {
                assert_eq!(decode(&encode(kind, &outcome)).expect("reads back"), outcome);
            }
        }
    }

    #[test]
    fn damaged_results_are_refused() {
        assert!(decode(&[]).is_err());
        assert!(decode(b"not a result").is_err());
    }
}
