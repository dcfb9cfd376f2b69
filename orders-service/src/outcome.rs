//! What an operation came to: the one value that is kept beside it, and the label that tells the holder of the key what to do.

use crate::{operation_id::TicketId, order::Order, payment::Payment, timestamp::Timestamp};

/// What the holder of the key does with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Decided for good: keep it.
    Final,
    /// Nothing happened: the key may be used again.
    NoEffect,
    /// Not known: ask.
    Unknown,
}

/// What an operation is, fixed by the first mutation under its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An order is placed.
    PlaceOrder,
    /// An order is paid at the acquirer.
    Pay,
    /// An order was paid elsewhere.
    ConfirmOrder,
    /// An order is given back.
    CancelOrder,
    /// A ticket is used.
    CheckInTicket,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Nothing under this id for this tenant.
    NotFound,
    /// Not enough seats now.
    SoldOut,
    /// The request contradicts itself or the catalogue.
    Invalid,
    /// The order is not pending.
    NotPending,
    /// The order cannot be cancelled as it stands.
    NotCancellable,
    /// The order of the ticket is not paid.
    NotPaid,
    /// Capacity would fall below what is sold and held.
    CapacityInUse,
    /// Another payment of the order is undecided.
    PaymentInProgress,
    /// The acquirer declined.
    PaymentDeclined,
    /// The hold is over; nothing was charged.
    HoldExpiredNotCharged,
    /// The hold was over when the approval came; the money goes back.
    HoldExpiredRefunded,
    /// A charge was found after the payment had been given up; the money goes back.
    PaymentRefunded,
    /// The order was paid otherwise when the approval came; the money goes back.
    NotPendingRefunded,
}

/// An expected refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// One sentence for the caller, without a full stop.
    pub detail: String,
}

/// A use of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckIn {
    /// Which ticket.
    pub ticket: TicketId,
    /// It had been used before this.
    pub is_already_used: bool,
    /// When it was first used.
    pub used_at: Timestamp,
}

/// What an operation came to, as it was at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An order was placed, confirmed or cancelled.
    Order(Order),
    /// A payment was approved, or is pending.
    Payment(Payment),
    /// A ticket was used.
    CheckIn(CheckIn),
    /// It was refused.
    Refused(Refusal),
}

/// What a mutation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What to do with it.
    pub label: Label,
    /// What it came to; none when that is not known.
    pub outcome: Option<Outcome>,
    /// It comes from an earlier execution of this operation.
    pub is_replay: bool,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::SoldOut,
        Self::Invalid,
        Self::NotPending,
        Self::NotCancellable,
        Self::NotPaid,
        Self::CapacityInUse,
        Self::PaymentInProgress,
        Self::PaymentDeclined,
        Self::HoldExpiredNotCharged,
        Self::HoldExpiredRefunded,
        Self::PaymentRefunded,
        Self::NotPendingRefunded,
    ];

    /// The refusal with the sentence that fits every case of this reason.
    pub fn plain(self) -> Refusal {
        self.because(match self {
            Self::NotFound => "there is nothing under this id",
            Self::SoldOut => "not enough seats are available now",
            Self::Invalid => "the request contradicts the catalogue",
            Self::NotPending => "the order is not pending",
            Self::NotCancellable => "the order cannot be cancelled as it stands",
            Self::NotPaid => "the order of this ticket is not paid",
            Self::CapacityInUse => "the capacity would fall below the seats sold and held",
            Self::PaymentInProgress => "another payment of this order is undecided",
            Self::PaymentDeclined => "the payment was declined; the seats stay held until the hold expires",
            Self::HoldExpiredNotCharged => "the hold of the order is over and nothing is charged",
            Self::HoldExpiredRefunded => "the hold was over when the payment was approved; the payment is refunded",
            Self::PaymentRefunded => "the payment was given up before its charge was found; the charge is refunded",
            Self::NotPendingRefunded => "the order was paid otherwise when the payment was approved; it is refunded",
        })
    }

    /// The refusal with its own sentence.
    pub fn because(self, detail: impl Into<String>) -> Refusal {
        Refusal { reason: self, detail: detail.into() }
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::PlaceOrder, Self::Pay, Self::ConfirmOrder, Self::CancelOrder, Self::CheckInTicket];

    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlaceOrder => "place_order",
            Self::Pay => "pay",
            Self::ConfirmOrder => "confirm_order",
            Self::CancelOrder => "cancel_order",
            Self::CheckInTicket => "check_in_ticket",
        }
    }

    /// Reads the word of the store.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Label {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::NoEffect => "no_effect",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word of the store.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Final, Self::NoEffect, Self::Unknown].into_iter().find(|label| label.as_str() == word)
    }
}

impl Answer {
    /// The operation is decided: keep the answer.
    pub fn done(outcome: Outcome) -> Self {
        Self { label: Label::Final, outcome: Some(outcome), is_replay: false }
    }

    /// Nothing happened, and why.
    pub fn refused(refusal: Refusal) -> Self {
        Self { label: Label::NoEffect, outcome: Some(Outcome::Refused(refusal)), is_replay: false }
    }

    /// What happened is not known.
    pub fn unknown(outcome: Option<Outcome>) -> Self {
        Self { label: Label::Unknown, outcome, is_replay: false }
    }
}
