use std::time::UNIX_EPOCH;

use super::*;

const NOW: SystemTime = UNIX_EPOCH;
const APPROVED: Status = Status::Decided(Decision::Approved);
const DECLINED: Status = Status::Decided(Decision::Declined);
const DELAY: Duration = Duration::from_millis(700);

fn charge(method: Method) -> Charge {
    Charge { amount: 2000, currency: "EUR".into(), method }
}

fn euros(amount: u64) -> Refund {
    Refund { amount, currency: "EUR".into() }
}

fn paid(method: Method) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.pay("p", charge(method), NOW).unwrap();
    ledger
}

fn receipt(status: Status, method: Method) -> Receipt {
    Receipt { status, charge: charge(method), refunds: vec![] }
}

fn captured(ledger: &Ledger) -> (u64, u128) {
    (ledger.totals().charges, ledger.totals().captured)
}

/// What is left to be done, without the event itself.
#[derive(Debug, PartialEq)]
enum Left {
    Nothing,
    Announce,
    Mature(Duration),
}

fn left(effect: &Effect) -> Left {
    match effect {
        Effect::Nothing => Left::Nothing,
        Effect::Announce(_) => Left::Announce,
        Effect::MatureAfter(delay) => Left::Mature(*delay),
    }
}

#[test]
fn each_method_answers_holds_and_charges_as_its_name_says() {
    use Left::{Announce, Mature, Nothing};
    use Method as M;
    let table = [
        (M::Approved, Reply::Payment(receipt(APPROVED, M::Approved)), Announce, Some(APPROVED)),
        (M::Declined, Reply::Payment(receipt(DECLINED, M::Declined)), Announce, Some(DECLINED)),
        (M::Pending, Reply::Payment(receipt(Status::Pending, M::Pending)), Nothing, Some(Status::Pending)),
        (M::Slow(DELAY), Reply::WhenDecided, Mature(DELAY), Some(Status::Pending)),
        (M::Error, Reply::InternalError, Nothing, None),
        (M::ChargeThenHang, Reply::Never, Announce, Some(APPROVED)),
        (M::ChargeThenDrop, Reply::Close, Announce, Some(APPROVED)),
        (M::Drop, Reply::Close, Nothing, None),
        (M::PendingChargeThenHang, Reply::Never, Nothing, Some(Status::Pending)),
        (M::Late(DELAY), Reply::Close, Mature(DELAY), None),
    ];
    for (method, reply, effect, status) in table {
        let mut ledger = Ledger::default();
        let (answered, remains) = ledger.pay("p", charge(method), NOW).unwrap();
        assert_eq!((answered, left(&remains)), (reply, effect), "{method}");
        assert_eq!(ledger.counters("p").unwrap().status, status, "{method}");
        let charges = u64::from(status == Some(APPROVED));
        assert_eq!(ledger.counters("p").unwrap().charges, charges, "{method}");
        assert_eq!(captured(&ledger), (charges, u128::from(charges) * 2000), "{method}");
        assert_eq!(ledger.query("p").ok().map(|receipt| receipt.status), status, "{method}");
    }
}

#[test]
fn repeat_answers_the_payment_as_it_is_and_leaves_nothing_to_do() {
    use Method as M;
    let table = [
        (M::Approved, Reply::Payment(receipt(APPROVED, M::Approved))),
        (M::Declined, Reply::Payment(receipt(DECLINED, M::Declined))),
        (M::Pending, Reply::Payment(receipt(Status::Pending, M::Pending))),
        (M::Slow(DELAY), Reply::WhenDecided),
        (M::Error, Reply::InternalError),
        (M::ChargeThenHang, Reply::Payment(receipt(APPROVED, M::ChargeThenHang))),
        (M::ChargeThenDrop, Reply::Payment(receipt(APPROVED, M::ChargeThenDrop))),
        (M::Drop, Reply::Close),
        (M::PendingChargeThenHang, Reply::Payment(receipt(Status::Pending, M::PendingChargeThenHang))),
        (M::Late(DELAY), Reply::Close),
    ];
    for (method, reply) in table {
        let mut ledger = paid(method);
        let before = ledger.totals();
        assert_eq!(ledger.pay("p", charge(method), NOW), Ok((reply, Effect::Nothing)), "{method}");
        assert_eq!(ledger.totals(), before, "{method}");
    }
}

#[test]
fn another_body_under_a_payment_id_is_refused() {
    let others = [
        Charge { amount: 2001, ..charge(Method::Pending) },
        Charge { currency: "USD".into(), ..charge(Method::Pending) },
        charge(Method::Approved),
    ];
    for other in others {
        let mut ledger = paid(Method::Pending);
        assert_eq!(ledger.pay("p", other, NOW), Err(Refusal::PaymentReused));
    }
    let mut ledger = paid(Method::Late(DELAY));
    assert_eq!(ledger.pay("p", charge(Method::Approved), NOW), Err(Refusal::PaymentReused));
}

#[test]
fn id_of_which_nothing_was_kept_is_free_for_another_body() {
    for method in [Method::Error, Method::Drop] {
        let mut ledger = paid(method);
        let (reply, _) = ledger.pay("p", charge(Method::Approved), NOW).unwrap();
        assert_eq!(reply, Reply::Payment(receipt(APPROVED, Method::Approved)));
    }
}

#[test]
fn maturing_approves_slow_and_late_payments_once() {
    for method in [Method::Slow(DELAY), Method::Late(DELAY)] {
        let mut ledger = paid(method);
        assert!(ledger.mature("p", NOW).is_some(), "{method}");
        assert!(ledger.mature("p", NOW).is_none(), "{method}");
        assert_eq!(captured(&ledger), (1, 2000), "{method}");
        let repeat = ledger.pay("p", charge(method), NOW).unwrap();
        assert_eq!(repeat, (Reply::Payment(receipt(APPROVED, method)), Effect::Nothing), "{method}");
    }
}

#[test]
fn maturing_leaves_a_payment_settled_by_hand_alone() {
    let mut ledger = paid(Method::Slow(DELAY));
    ledger.settle("p", Decision::Declined, NOW).unwrap();
    assert_eq!(ledger.mature("p", NOW), None);
    assert_eq!(captured(&ledger), (0, 0));
}

#[test]
fn settling_again_answers_the_same_event_and_makes_none() {
    for method in [Method::Pending, Method::PendingChargeThenHang, Method::Slow(DELAY)] {
        let mut ledger = paid(method);
        let (id, event) = ledger.settle("p", Decision::Approved, NOW).unwrap();
        assert_eq!(ledger.event(&id), Ok(event.unwrap()));
        assert_eq!(ledger.settle("p", Decision::Approved, NOW), Ok((id, None)));
        assert_eq!(captured(&ledger), (1, 2000));
    }
}

#[test]
fn contradicting_settlement_changes_nothing() {
    let mut ledger = paid(Method::Pending);
    ledger.settle("p", Decision::Declined, NOW).unwrap();
    assert_eq!(ledger.settle("p", Decision::Approved, NOW), Err(Refusal::DecidedOtherwise));
    assert_eq!(ledger.counters("p").unwrap().status, Some(DECLINED));
    assert_eq!(captured(&ledger), (0, 0));
}

#[test]
fn payment_nobody_can_see_cannot_be_settled_or_refunded() {
    for mut ledger in [Ledger::default(), paid(Method::Drop), paid(Method::Late(DELAY))] {
        assert_eq!(ledger.settle("p", Decision::Approved, NOW), Err(Refusal::NoSuchPayment));
        assert_eq!(ledger.refund("p", "r", euros(1)), Err(Refusal::NoSuchPayment));
    }
}

#[test]
fn refund_happens_once_per_id_and_never_exceeds_what_was_captured() {
    let mut ledger = paid(Method::Approved);
    assert_eq!(ledger.refund("p", "r1", euros(1500)), Ok(euros(1500)));
    assert_eq!(ledger.refund("p", "r1", euros(1500)), Ok(euros(1500)));
    assert_eq!(ledger.refund("p", "r1", euros(1)), Err(Refusal::RefundReused));
    assert_eq!(ledger.refund("p", "r2", euros(501)), Err(Refusal::OverRefund));
    assert_eq!(ledger.refund("p", "r2", euros(500)), Ok(euros(500)));
    assert_eq!(ledger.refund("p", "r3", euros(1)), Err(Refusal::OverRefund));
    assert_eq!(ledger.counters("p").unwrap().refunds, 2);
    assert_eq!(ledger.totals(), Totals { charges: 1, captured: 2000, refunded: 2000 });
    let refunds = ledger.query("p").unwrap().refunds;
    assert_eq!(refunds, [("r1".to_owned(), euros(1500)), ("r2".to_owned(), euros(500))]);
}

#[test]
fn refund_needs_an_approved_payment_of_its_currency() {
    for method in [Method::Pending, Method::Declined] {
        assert_eq!(paid(method).refund("p", "r", euros(1)), Err(Refusal::NotApproved), "{method}");
    }
    let dollars = Refund { amount: 1, currency: "USD".into() };
    assert_eq!(paid(Method::Approved).refund("p", "r", dollars), Err(Refusal::OtherCurrency));
}

#[test]
fn questions_are_counted_also_about_what_is_not_there() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.counters("p"), None);
    assert_eq!(ledger.query("p"), Err(Refusal::NoSuchPayment));
    assert_eq!(ledger.counters("p"), Some(Counters { status: None, charges: 0, queries: 1, refunds: 0 }));
    ledger.pay("p", charge(Method::Approved), NOW).unwrap();
    ledger.query("p").unwrap();
    assert_eq!(ledger.counters("p"), Some(Counters { status: Some(APPROVED), charges: 1, queries: 2, refunds: 0 }));
}

#[test]
fn totals_hold_more_than_any_one_payment() {
    let mut ledger = Ledger::default();
    for id in ["a", "b", "c"] {
        let charge = Charge { amount: u64::MAX, ..charge(Method::Approved) };
        ledger.pay(id, charge, NOW).unwrap();
    }
    assert_eq!(captured(&ledger), (3, 3 * u128::from(u64::MAX)));
}
