use super::*;
use std::fmt::Write as _;

const ORDER: &str = "7b0a4d1e-54f1-5b7c-9a57-0f4c5a2d9e11";
const PAYMENT: &str = "f3a1f5f4-0c0e-5c9a-8f53-1b1f4f6f2c42";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn money(amount: i64) -> Option<proto::Money> {
    Some(proto::Money { amount, currency: "EUR".to_owned() })
}

fn moment(seconds: i64, nanos: i32) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos })
}

fn order_of(status: proto::OrderStatus, ticket: proto::TicketStatus) -> result::Kind {
    let ticket =
        |id: &str| proto::Ticket { id: id.to_owned(), ticket_type_id: "general".to_owned(), status: ticket.into() };
    result::Kind::Order(proto::Order {
        id: ORDER.to_owned(),
        status: status.into(),
        venue_id: "demo \"é\"".to_owned(),
        items: vec![proto::OrderItem { ticket_type_id: "general".to_owned(), quantity: 2, unit_price: money(1000) }],
        tickets: vec![ticket("t1"), ticket("t2")],
        total: money(2000),
        created_at: moment(1_796_061_600, 0),
        hold_expires_at: moment(1_796_063_400, 123_456_000),
    })
}

fn payment_of(status: proto::PaymentStatus) -> result::Kind {
    result::Kind::Payment(proto::Payment {
        id: PAYMENT.to_owned(),
        order_id: ORDER.to_owned(),
        status: status.into(),
        amount: money(2000),
    })
}

fn refused(reason: RefusalReason) -> result::Kind {
    result::Kind::Refusal(proto::Refusal { reason: reason.into(), detail: "one sentence about it".to_owned() })
}

fn rendered(operation: OperationKind, kind: result::Kind, label: proto::Label) -> (Response<Bytes>, Outcome) {
    render(proto::Result { operation: operation.into(), kind: Some(kind) }, label, false, TRACE).unwrap()
}

fn shown(title: &str, (response, outcome): &(Response<Bytes>, Outcome)) -> String {
    let mut text = format!("--- {title}\n{} {:?} `{}`\n", response.status(), outcome.label, outcome.resource_id);
    for (name, value) in response.headers() {
        let _ = writeln!(text, "{name}: {}", value.to_str().unwrap());
    }
    let _ = writeln!(text, "{}\n", std::str::from_utf8(response.body()).unwrap());
    text
}

#[test]
fn every_result_is_rendered() {
    use OperationKind as Op;
    use proto::{Label as L, OrderStatus as O, PaymentStatus as P, TicketStatus as T};
    let check_in = result::Kind::CheckIn(proto::CheckIn {
        ticket_id: "t1".to_owned(),
        already_used: true,
        used_at: moment(1_796_061_600, 999_000_000),
    });
    let results = [
        ("placed", rendered(Op::PlaceOrder, order_of(O::Pending, T::Held), L::Final)),
        ("confirmed", rendered(Op::ConfirmOrder, order_of(O::Paid, T::Valid), L::Final)),
        ("cancelled", rendered(Op::CancelOrder, order_of(O::Cancelled, T::Void), L::Final)),
        ("refund pending", rendered(Op::CancelOrder, order_of(O::RefundPending, T::Void), L::Final)),
        ("refunded", rendered(Op::CancelOrder, order_of(O::Refunded, T::Void), L::Final)),
        ("expired", rendered(Op::CancelOrder, order_of(O::Expired, T::Used), L::NoEffect)),
        ("approved", rendered(Op::Pay, payment_of(P::Approved), L::Final)),
        ("pending", rendered(Op::Pay, payment_of(P::Pending), L::Unknown)),
        ("checked in", rendered(Op::CheckInTicket, check_in, L::Final)),
    ];
    let text: String = results.iter().map(|(title, result)| shown(title, result)).collect();
    insta::assert_snapshot!("results", text);
}

#[test]
fn every_refusal_is_rendered() {
    let final_ones = [
        RefusalReason::PaymentDeclined,
        RefusalReason::HoldExpiredRefunded,
        RefusalReason::PaymentRefunded,
        RefusalReason::NotPendingRefunded,
    ];
    let mut text = String::new();
    for reason in (1..).map_while(|number| RefusalReason::try_from(number).ok()) {
        let label = if final_ones.contains(&reason) { proto::Label::Final } else { proto::Label::NoEffect };
        text += &shown(reason.as_str_name(), &rendered(OperationKind::Pay, refused(reason), label));
    }
    insta::assert_snapshot!("refusals", text);
}

#[test]
fn the_same_result_gives_the_same_answer_whoever_renders_it() {
    for kind in [payment_of(proto::PaymentStatus::Approved), refused(RefusalReason::PaymentDeclined)] {
        let (own, _) = rendered(OperationKind::Pay, kind.clone(), proto::Label::Final);
        let kept = proto::Result { operation: OperationKind::Pay.into(), kind: Some(kind) };
        let (recovered, outcome) = render(kept, proto::Label::Final, true, TRACE).unwrap();
        assert_eq!(
            (own.status(), own.headers(), own.body()),
            (recovered.status(), recovered.headers(), recovered.body())
        );
        assert!(outcome.is_replayed);
    }
}

#[test]
fn what_is_kept_for_good_is_what_the_idempotency_service_lets_anybody_keep() {
    use OperationKind as Op;
    use proto::{OrderStatus as O, PaymentStatus as P, TicketStatus as T};
    let results = [(Op::PlaceOrder, order_of(O::Pending, T::Held)), (Op::CancelOrder, order_of(O::Refunded, T::Void))];
    let refusals = (1..).map_while(|number| RefusalReason::try_from(number).ok()).map(|it| (Op::Pay, refused(it)));
    for (operation, kind) in results.into_iter().chain([(Op::Pay, payment_of(P::Approved))]).chain(refusals) {
        let (response, outcome) = rendered(operation, kind, proto::Label::Final);
        assert_eq!(outcome.label, Label::Final);
        assert!(idem_core::is_final(response.status().as_u16()), "{}", response.status());
    }
    let (undecided, _) = rendered(Op::Pay, payment_of(P::Pending), proto::Label::Unknown);
    assert!(!idem_core::is_final(undecided.status().as_u16()));
}

#[test]
fn only_an_open_payment_is_undecided() {
    use proto::{Label as L, PaymentStatus as P};
    let label = |kind, label| rendered(OperationKind::Pay, kind, label).1.label;
    assert_eq!(label(payment_of(P::Pending), L::Unknown), Label::Undecided);
    assert_eq!(label(payment_of(P::Approved), L::Unknown), Label::Unknown);
    assert_eq!(label(refused(RefusalReason::SoldOut), L::Unspecified), Label::Unknown);
}

#[test]
fn what_this_release_does_not_know_is_not_guessed() {
    let render = |kind| render(proto::Result { operation: 0, kind }, proto::Label::Final, false, TRACE);
    assert!(render(None).is_err());
    assert!(render(Some(payment_of(proto::PaymentStatus::Unspecified))).is_err());
    assert!(render(Some(refused(RefusalReason::Unspecified))).is_err());
    assert!(render(Some(order_of(proto::OrderStatus::Unspecified, proto::TicketStatus::Held))).is_err());
    let result::Kind::Order(mut order) = order_of(proto::OrderStatus::Paid, proto::TicketStatus::Valid) else {
        unreachable!()
    };
    order.total = None;
    assert_eq!(render(Some(result::Kind::Order(order))).unwrap_err(), Unreadable("a price without an amount"));
}
