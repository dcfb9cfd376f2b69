//! Orders, and what may be done to one: total decisions without time or I/O.

use crate::{
    money::Money,
    operation_id::{OrderId, PaymentId, TicketId},
    outcome::RefusalReason,
    place_order::PlaceOrder,
    timestamp::Timestamp,
};

/// Seats of one ticket type in an order, at the price of the moment it was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The ticket type.
    pub ticket_type: String,
    /// How many seats.
    pub quantity: u32,
    /// Price of one seat, frozen.
    pub unit_price: Money,
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStatus {
    /// Seats are held.
    Pending,
    /// Seats are sold.
    Paid,
    /// Given back before or after payment, with nothing to return at the acquirer.
    Cancelled,
    /// The hold lapsed.
    Expired,
    /// Cancelled, and its payment is going back.
    RefundPending,
    /// Cancelled, and its payment has gone back.
    Refunded,
}

/// Whether the seats of a pending order are still promised, judged by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// They are.
    Live,
    /// They are not; the sweeper may or may not have been here.
    Over,
}

/// Where a ticket stands; follows from its order and its own first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketStatus {
    /// The order is not paid yet.
    Held,
    /// Lets its bearer in.
    Valid,
    /// Has let its bearer in.
    Used,
    /// The order came to nothing.
    Void,
}

/// One seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its name.
    pub id: TicketId,
    /// Its kind.
    pub ticket_type: String,
    /// Where it stands.
    pub status: TicketStatus,
}

/// An order as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its name.
    pub id: OrderId,
    /// Where it stands; a lapsed hold shows as expired, swept or not.
    pub status: OrderStatus,
    /// The venue of all its types.
    pub venue: String,
    /// What was ordered.
    pub items: Vec<Item>,
    /// One a seat.
    pub tickets: Vec<Ticket>,
    /// What it costs.
    pub total: Money,
    /// When it was placed.
    pub created_at: Timestamp,
    /// When the hold ends, unless a payment is undecided then.
    pub hold_expires_at: Timestamp,
}

/// What a guard needs to know about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderState {
    /// As stored: a lapsed hold may still say pending.
    pub status: OrderStatus,
    /// Of the stored hold.
    pub hold: Hold,
    /// A payment of this order is started or pending.
    pub has_open_payment: bool,
}

/// What cancelling an order gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// Held seats.
    Held,
    /// Sold seats; nothing was paid at the acquirer.
    Sold,
    /// Sold seats, and the money of this payment.
    Refund(PaymentId),
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Paid, Self::Cancelled, Self::Expired, Self::RefundPending, Self::Refunded];

    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::RefundPending => "refund_pending",
            Self::Refunded => "refunded",
        }
    }

    /// Reads the word of the store.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// What the owner sees: a pending order whose hold is over has expired, even before the sweeper says so.
    pub fn seen(self, hold: Hold) -> Self {
        match (self, hold) {
            (Self::Pending, Hold::Over) => Self::Expired,
            (status, _) => status,
        }
    }

    /// Where a ticket of this order stands.
    pub fn ticket(self, is_used: bool) -> TicketStatus {
        match (self, is_used) {
            (Self::Pending, _) => TicketStatus::Held,
            (Self::Paid, false) => TicketStatus::Valid,
            (Self::Paid, true) => TicketStatus::Used,
            (Self::Cancelled | Self::Expired | Self::RefundPending | Self::Refunded, _) => TicketStatus::Void,
        }
    }
}

impl Order {
    /// A new order whose seats are held: one ticket a seat, in the sequence of the items.
    pub fn placed(
        ask: &PlaceOrder,
        items: Vec<Item>,
        total: Money,
        created_at: Timestamp,
        hold_expires_at: Timestamp,
    ) -> Self {
        let types = items.iter().flat_map(|item| std::iter::repeat_n(&item.ticket_type, item.quantity as usize));
        let status = OrderStatus::Pending;
        let ticket = |(ticket_type, position): (&String, u32)| Ticket {
            id: ask.order.ticket(position),
            ticket_type: ticket_type.clone(),
            status: status.ticket(false),
        };
        let (id, venue, tickets) = (ask.order, ask.venue.clone(), types.zip(0u32..).map(ticket).collect());
        Self { id, status, venue, items, tickets, total, created_at, hold_expires_at }
    }
}

impl OrderState {
    /// May this order be paid, at the acquirer by a payment that is not open yet, or outside it?
    pub fn may_be_paid(self) -> Result<(), RefusalReason> {
        match self.status.seen(self.hold) {
            OrderStatus::Pending if self.has_open_payment => Err(RefusalReason::PaymentInProgress),
            OrderStatus::Pending => Ok(()),
            OrderStatus::Expired => Err(RefusalReason::HoldExpiredNotCharged),
            OrderStatus::Paid | OrderStatus::Cancelled | OrderStatus::RefundPending | OrderStatus::Refunded => {
                Err(RefusalReason::NotPending)
            }
        }
    }

    /// May this order be cancelled, and what does that give back? `paid_by` is the payment that paid it, if one did.
    pub fn may_be_cancelled(
        self,
        paid_by: Option<PaymentId>,
        is_checked_in: bool,
    ) -> Result<Cancellation, RefusalReason> {
        if self.has_open_payment || is_checked_in {
            return Err(RefusalReason::NotCancellable);
        }
        match (self.status.seen(self.hold), paid_by) {
            (OrderStatus::Pending, _) => Ok(Cancellation::Held),
            (OrderStatus::Paid, None) => Ok(Cancellation::Sold),
            (OrderStatus::Paid, Some(payment)) => Ok(Cancellation::Refund(payment)),
            (OrderStatus::Expired | OrderStatus::Cancelled | OrderStatus::RefundPending | OrderStatus::Refunded, _) => {
                Err(RefusalReason::NotCancellable)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(status: OrderStatus, hold: Hold, has_open_payment: bool) -> OrderState {
        OrderState { status, hold, has_open_payment }
    }

    #[test]
    fn only_a_live_pending_order_without_open_payment_may_be_paid() {
        for status in OrderStatus::ALL {
            for hold in [Hold::Live, Hold::Over] {
                for open in [false, true] {
                    let expected = match (status, hold, open) {
                        (OrderStatus::Pending, Hold::Live, false) => Ok(()),
                        (OrderStatus::Pending, Hold::Live, true) => Err(RefusalReason::PaymentInProgress),
                        (OrderStatus::Pending, Hold::Over, _) | (OrderStatus::Expired, _, _) => {
                            Err(RefusalReason::HoldExpiredNotCharged)
                        }
                        _ => Err(RefusalReason::NotPending),
                    };
                    assert_eq!(state(status, hold, open).may_be_paid(), expected, "{status:?} {hold:?} open={open}");
                }
            }
        }
    }

    #[test]
    fn an_open_payment_or_a_used_ticket_prevents_every_cancellation() {
        for status in OrderStatus::ALL {
            for hold in [Hold::Live, Hold::Over] {
                assert!(state(status, hold, true).may_be_cancelled(None, false).is_err());
                assert!(state(status, hold, false).may_be_cancelled(None, true).is_err());
            }
        }
    }

    #[test]
    fn cancelling_gives_back_what_the_order_has() {
        let payment = PaymentId::parse("00000000-0000-4000-8000-000000000001").expect("a UUID");
        let cancel = |status, paid_by| state(status, Hold::Live, false).may_be_cancelled(paid_by, false);
        assert_eq!(cancel(OrderStatus::Pending, None), Ok(Cancellation::Held));
        assert_eq!(cancel(OrderStatus::Paid, None), Ok(Cancellation::Sold));
        assert_eq!(cancel(OrderStatus::Paid, Some(payment)), Ok(Cancellation::Refund(payment)));
        for over in [OrderStatus::Cancelled, OrderStatus::Expired, OrderStatus::RefundPending, OrderStatus::Refunded] {
            assert_eq!(cancel(over, Some(payment)), Err(RefusalReason::NotCancellable));
        }
    }

    #[test]
    fn every_status_word_reads_back() {
        for status in OrderStatus::ALL {
            assert_eq!(OrderStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(OrderStatus::parse("PENDING"), None);
    }
}
