//! Where the model tells the orders service's decisions again, it tells them as the product makes them.

use model::{
    acquirer::Word,
    names,
    payment::{self, PaymentStatus, Settlement},
};
use orders_service::{order, payment as product};

const STATUSES: [(PaymentStatus, product::PaymentStatus); 7] = [
    (PaymentStatus::Started, product::PaymentStatus::Started),
    (PaymentStatus::Pending, product::PaymentStatus::Pending),
    (PaymentStatus::Approved, product::PaymentStatus::Approved),
    (PaymentStatus::Declined, product::PaymentStatus::Declined),
    (PaymentStatus::Closed, product::PaymentStatus::Closed),
    (PaymentStatus::RefundPending, product::PaymentStatus::RefundPending),
    (PaymentStatus::Refunded, product::PaymentStatus::Refunded),
];

const WORDS: [(Word, product::Verdict); 3] = [
    (Word::Approved, product::Verdict::Approved),
    (Word::Declined, product::Verdict::Declined),
    (Word::Pending, product::Verdict::Pending),
];

/// The orders of the model. Cancelled ones and those that go back are no part of it.
const ORDERS: [(names::OrderStatus, order::OrderStatus); 3] = [
    (names::OrderStatus::Pending, order::OrderStatus::Pending),
    (names::OrderStatus::Paid, order::OrderStatus::Paid),
    (names::OrderStatus::Expired, order::OrderStatus::Expired),
];

fn told_again(settlement: product::Settlement) -> Settlement {
    match settlement {
        product::Settlement::Nothing | product::Settlement::Contradiction => Settlement::Nothing,
        product::Settlement::MarkPending => Settlement::MarkPending,
        product::Settlement::Decline => Settlement::Decline,
        product::Settlement::PayHeld => Settlement::PayHeld,
        product::Settlement::PayIfFree => Settlement::PayIfFree,
        product::Settlement::Refund(_) => Settlement::Refund,
    }
}

#[test]
fn the_acquirers_word_does_to_a_payment_what_it_does_in_the_product() {
    assert_eq!(STATUSES.map(|(_, theirs)| theirs), product::PaymentStatus::ALL, "every status is told");
    for (status, their_status) in STATUSES {
        assert_eq!(status.is_open(), their_status.is_open());
        assert_eq!(status.is_undecided(), their_status.is_undecided());
        for (order, their_order) in ORDERS {
            for (word, verdict) in WORDS {
                let ours = payment::settlement(status, order, word);
                let theirs = their_status.settle(their_order, verdict);
                assert_eq!(ours, told_again(theirs), "{status:?}, {order:?}, {word:?}");
            }
        }
    }
}

#[test]
fn an_order_may_be_paid_when_it_may_be_in_the_product() {
    for (status, their_status) in ORDERS {
        for has_open_payment in [false, true] {
            let theirs = order::OrderState { status: their_status, hold: order::Hold::Live, has_open_payment };
            let ours = payment::may_be_paid(status, has_open_payment);
            assert_eq!(ours, theirs.may_be_paid().is_ok(), "{status:?}, open payment: {has_open_payment}");
        }
    }
}
