//! Payments, and what the acquirer's word does to one: a total decision without time or I/O.

use crate::{
    money::Money,
    operation_id::{OrderId, PaymentId},
    order::OrderStatus,
    outcome::RefusalReason,
};

/// Where a payment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentStatus {
    /// Recorded, perhaps sent; the acquirer has not been heard.
    Started,
    /// The acquirer has it and has not decided.
    Pending,
    /// Charged, and it paid the order.
    Approved,
    /// Never to be charged.
    Declined,
    /// Given up while nothing was found; still watched.
    Closed,
    /// Charged, and going back.
    RefundPending,
    /// Charged, and gone back.
    Refunded,
}

/// A payment as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Its name, here and at the acquirer.
    pub id: PaymentId,
    /// What it pays.
    pub order: OrderId,
    /// Where it stands.
    pub status: PaymentStatus,
    /// How much.
    pub amount: Money,
}

/// What the acquirer says about a payment id, once amount and currency are known to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has charged.
    Approved,
    /// It will not charge.
    Declined,
    /// It has not decided.
    Pending,
}

/// What the acquirer's word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Nothing that was not known.
    Nothing,
    /// It contradicts what was settled: nothing changes, somebody must look.
    Contradiction,
    /// The payment is now pending.
    MarkPending,
    /// The payment is declined; the hold goes on as if it had not been.
    Decline,
    /// The payment pays its order, out of the seats held for it.
    PayHeld,
    /// The payment pays its order if its seats are free to be taken again; otherwise it is refunded.
    PayIfFree,
    /// The payment is refunded once, and this is its operation's final answer.
    Refund(RefusalReason),
}

impl PaymentStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Started,
        Self::Pending,
        Self::Approved,
        Self::Declined,
        Self::Closed,
        Self::RefundPending,
        Self::Refunded,
    ];

    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Closed => "closed",
            Self::RefundPending => "refund_pending",
            Self::Refunded => "refunded",
        }
    }

    /// Reads the word of the store.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Is it undecided, and does it keep its order from other payments?
    pub fn is_open(self) -> bool {
        matches!(self, Self::Started | Self::Pending)
    }

    /// Has the acquirer not decided it, open or given up?
    pub fn is_undecided(self) -> bool {
        self.is_open() || self == Self::Closed
    }

    /// What `verdict` does to a payment of this status whose order is stored as `order`.
    ///
    /// A pending order still has its seats even when its hold is over: whoever takes them sweeps it to expired first.
    pub fn settle(self, order: OrderStatus, verdict: Verdict) -> Settlement {
        match (self, verdict) {
            (Self::Started, Verdict::Pending) => Settlement::MarkPending,
            (Self::Pending | Self::Closed, Verdict::Pending) => Settlement::Nothing,
            (Self::Started | Self::Pending | Self::Closed, Verdict::Declined) => Settlement::Decline,
            (Self::Started | Self::Pending, Verdict::Approved) => approve(order),
            // Given up: whatever else happened to the order since, this charge is not wanted any more.
            (Self::Closed, Verdict::Approved) => Settlement::Refund(RefusalReason::PaymentRefunded),
            (Self::Approved | Self::RefundPending | Self::Refunded, Verdict::Approved)
            | (Self::Declined, Verdict::Declined) => Settlement::Nothing,
            // An answer that was overtaken on its way.
            (Self::Approved | Self::Declined | Self::RefundPending | Self::Refunded, Verdict::Pending) => {
                Settlement::Nothing
            }
            (Self::Approved | Self::RefundPending | Self::Refunded, Verdict::Declined)
            | (Self::Declined, Verdict::Approved) => Settlement::Contradiction,
        }
    }
}

/// What an approval of an open payment does to its order.
fn approve(order: OrderStatus) -> Settlement {
    match order {
        OrderStatus::Pending => Settlement::PayHeld,
        OrderStatus::Expired => Settlement::PayIfFree,
        // A cancelled order never takes seats again.
        OrderStatus::Cancelled | OrderStatus::RefundPending | OrderStatus::Refunded => {
            Settlement::Refund(RefusalReason::HoldExpiredRefunded)
        }
        OrderStatus::Paid => Settlement::Refund(RefusalReason::NotPendingRefunded),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERDICTS: [Verdict; 3] = [Verdict::Approved, Verdict::Declined, Verdict::Pending];

    /// The status a settlement leaves behind; `free` says whether seats could be taken again.
    fn after(status: PaymentStatus, settlement: Settlement, free: bool) -> PaymentStatus {
        match settlement {
            Settlement::Nothing | Settlement::Contradiction => status,
            Settlement::MarkPending => PaymentStatus::Pending,
            Settlement::Decline => PaymentStatus::Declined,
            Settlement::PayHeld => PaymentStatus::Approved,
            Settlement::PayIfFree if free => PaymentStatus::Approved,
            Settlement::PayIfFree | Settlement::Refund(_) => PaymentStatus::RefundPending,
        }
    }

    #[test]
    fn a_decided_payment_never_changes() {
        for status in PaymentStatus::ALL.into_iter().filter(|status| !status.is_undecided()) {
            for order in OrderStatus::ALL {
                for verdict in VERDICTS {
                    let settlement = status.settle(order, verdict);
                    assert!(
                        matches!(settlement, Settlement::Nothing | Settlement::Contradiction),
                        "{status:?} {order:?} {verdict:?}: {settlement:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_charge_on_a_closed_payment_is_refunded_whatever_the_order_became() {
        for order in OrderStatus::ALL {
            assert_eq!(
                PaymentStatus::Closed.settle(order, Verdict::Approved),
                Settlement::Refund(RefusalReason::PaymentRefunded)
            );
        }
    }

    #[test]
    fn late_approvals_end_as_the_order_allows() {
        let approve = |order| PaymentStatus::Pending.settle(order, Verdict::Approved);
        assert_eq!(approve(OrderStatus::Pending), Settlement::PayHeld);
        assert_eq!(approve(OrderStatus::Expired), Settlement::PayIfFree);
        assert_eq!(approve(OrderStatus::Paid), Settlement::Refund(RefusalReason::NotPendingRefunded));
        for given_back in [OrderStatus::Cancelled, OrderStatus::RefundPending, OrderStatus::Refunded] {
            assert_eq!(approve(given_back), Settlement::Refund(RefusalReason::HoldExpiredRefunded));
        }
    }

    #[test]
    fn every_status_word_reads_back() {
        for status in PaymentStatus::ALL {
            assert_eq!(PaymentStatus::parse(status.as_str()), Some(status));
        }
    }

    fn verdicts() -> impl Strategy<Value = Vec<(Verdict, OrderStatus, bool)>> {
        prop::collection::vec(
            (prop::sample::select(&VERDICTS[..]), prop::sample::select(&OrderStatus::ALL[..]), any::<bool>()),
            0..12,
        )
    }

    proptest! {
        /// However words of the acquirer arrive, a payment is decided at most once, and by the first that decides.
        #[test]
        fn the_first_decision_stands(
            first in prop::sample::select(&[PaymentStatus::Started, PaymentStatus::Pending, PaymentStatus::Closed][..]),
            words in verdicts(),
        ) {
            let mut status = first;
            let mut decisions = 0;
            for (verdict, order, free) in words {
                let next = after(status, status.settle(order, verdict), free);
                if next != status && !next.is_undecided() {
                    decisions += 1;
                    prop_assert!(status.is_undecided());
                    prop_assert_eq!(next == PaymentStatus::Declined, verdict == Verdict::Declined);
                }
                if first == PaymentStatus::Closed {
                    prop_assert_ne!(next, PaymentStatus::Approved, "a closed payment was adopted");
                }
                status = next;
            }
            prop_assert!(decisions <= 1);
        }
    }
}
