//! Payments in the orders service: their rows, and what the acquirer's word does to one.
//!
//! [`settlement`] and [`may_be_paid`] are held to the product's own functions by a test.

use crate::{
    acquirer::Word,
    mutations::Mutation,
    names::{Grant, Op, OrderStatus, Outcome, PaymentId},
    orders::{Entry, Kept, Label, Reply},
    properties::Rule,
    step::Step,
    witness::Witness,
};

/// A payment's row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Payment {
    /// Its name at the acquirer.
    pub id: PaymentId,
    /// Where it stands.
    pub status: PaymentStatus,
    /// Tries at its refund. Counted only where refund ids derive from it.
    pub tries: u8,
}

/// Where a payment stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PaymentStatus {
    /// Recorded, perhaps sent.
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

/// What the acquirer's word does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// Nothing that was not known, or nothing that may be believed.
    Nothing,
    /// The payment is now pending.
    MarkPending,
    /// The payment is declined.
    Decline,
    /// The payment pays its order, whose seat is held.
    PayHeld,
    /// The payment pays its order if its seat is free to be taken again; else it is refunded.
    PayIfFree,
    /// The payment is refunded.
    Refund,
}

/// What the first transaction of a payment came to.
pub enum Begun {
    /// The answer is there.
    Answered(Reply),
    /// To be sent.
    Send,
}

impl PaymentStatus {
    /// Undecided, and it keeps its order from other payments.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Started | Self::Pending)
    }

    /// Not decided by the acquirer, open or given up.
    pub fn is_undecided(self) -> bool {
        self.is_open() || self == Self::Closed
    }
}

impl Payment {
    /// Does it hold, or may it come to hold, the client's money?
    pub fn has_effect(&self) -> bool {
        self.status.is_open() || self.status == PaymentStatus::Approved
    }
}

/// What `word` does to a payment of this status whose order is stored as `order`.
pub fn settlement(status: PaymentStatus, order: OrderStatus, word: Word) -> Settlement {
    use PaymentStatus as P;
    match (status, word) {
        (P::Started, Word::Pending) => Settlement::MarkPending,
        (P::Started | P::Pending | P::Closed, Word::Declined) => Settlement::Decline,
        (P::Started | P::Pending, Word::Approved) => match order {
            OrderStatus::Pending => Settlement::PayHeld,
            OrderStatus::Expired => Settlement::PayIfFree,
            OrderStatus::Paid => Settlement::Refund,
        },
        (P::Closed, Word::Approved) => Settlement::Refund,
        (P::Pending | P::Closed, Word::Pending) | (P::Approved | P::Declined | P::RefundPending | P::Refunded, _) => {
            Settlement::Nothing
        }
    }
}

/// May an order be paid by a payment that is not open yet?
pub fn may_be_paid(order: OrderStatus, has_open_payment: bool) -> bool {
    order == OrderStatus::Pending && !has_open_payment
}

impl Step<'_> {
    /// The payment's id at the acquirer, as it derives from the grant.
    fn payment_id(&self, grant: Grant) -> PaymentId {
        match self.protocol.mutation {
            Some(Mutation::IdsFromKeyAlone) => PaymentId(0),
            Some(Mutation::PaymentIdsFromAttempt) => PaymentId(grant.op.0 * 8 + grant.token.0),
            _ => PaymentId(grant.op.0),
        }
    }

    /// The order that an operation is to pay: every intent has its own.
    fn order_of(&self, op: Op) -> usize {
        usize::from(self.world.intent(op).0)
    }

    /// The first transaction of a payment: recorded, before anything is sent.
    pub fn begin_payment(&mut self, grant: Grant) -> Begun {
        match self.enter(grant) {
            Entry::Answered(reply) => return Begun::Answered(reply),
            // It waits for the answer of the call it repeats; what it hears is what that call hears, or nothing.
            Entry::Running => return Begun::Answered(Reply::Unknown),
            Entry::Act => {}
        }
        let id = self.payment_id(grant);
        let known = self.world.operation(grant.op).payment.clone();
        let is_open = known.as_ref().is_some_and(|payment| payment.status.is_open());
        if is_open && !self.is_mutated(Mutation::GuardOpenPayments) {
            self.say(|| format!("orders takes up the open payment {} under {grant}", id.0 + 1));
            self.show(Witness::PaymentResumed);
            self.record(grant, id, known.map_or(PaymentStatus::Started, |payment| payment.status));
            return Begun::Send;
        }
        let order = self.order_of(grant.op);
        let others_open = self.world.operations.iter().zip(0..).any(|(operation, number)| {
            let is_of_order = usize::from(operation.intent.0) == order;
            let is_own = Op(number) == grant.op;
            is_of_order && !is_own && operation.payment.as_ref().is_some_and(|payment| payment.status.is_open())
        });
        if !may_be_paid(self.world.orders[order].status, others_open) {
            self.say(|| "orders refuses: the order cannot be paid as it stands".to_owned());
            self.keep(grant, Label::NoEffect, Some(Outcome::NotPayable));
            return Begun::Answered(Reply::NoEffect(Outcome::NotPayable));
        }
        if known.is_some() {
            self.show(Witness::PaymentReopened);
        }
        let word = if known.is_some() { "opens again" } else { "records" };
        self.say(|| format!("orders {word} payment {} under {grant}", id.0 + 1));
        self.record(grant, id, PaymentStatus::Started);
        Begun::Send
    }

    fn record(&mut self, grant: Grant, id: PaymentId, status: PaymentStatus) {
        let operation = self.world.operation_mut(grant.op);
        operation.payment = Some(Payment { id, status, tries: 0 });
        operation.begun = grant.token;
    }

    /// The acquirer's word becomes rows, whoever heard it.
    pub fn apply(&mut self, op: Op, word: Word) {
        let Some(payment) = self.world.operation(op).payment.clone() else { return };
        let order = self.order_of(op);
        let adopts = self.is_mutated(Mutation::AdoptOnClosed) && payment.status == PaymentStatus::Closed;
        let status = if adopts { PaymentStatus::Started } else { payment.status };
        let mut settlement = settlement(status, self.world.orders[order].status, word);
        if settlement == Settlement::PayIfFree {
            let is_free = std::mem::replace(&mut self.world.is_seat_free, false);
            self.show(if is_free { Witness::SeatTakenAgain } else { Witness::SeatGone });
            settlement = if is_free { Settlement::PayHeld } else { Settlement::Refund };
        }
        if payment.status == PaymentStatus::Closed && word == Word::Approved {
            self.show(Witness::ClosedPaymentCharged);
            if settlement == Settlement::PayHeld {
                self.break_rule(Rule::GivenUpIsNeverKept);
            }
        }
        let (to, outcome) = match settlement {
            Settlement::Nothing | Settlement::PayIfFree => return,
            Settlement::MarkPending => (PaymentStatus::Pending, None),
            Settlement::Decline => (PaymentStatus::Declined, Some(Outcome::Declined)),
            Settlement::PayHeld => {
                self.world.orders[order].status = OrderStatus::Paid;
                self.world.orders[order].paid_by = Some(payment.id);
                (PaymentStatus::Approved, Some(Outcome::Paid(payment.id)))
            }
            Settlement::Refund => (PaymentStatus::RefundPending, Some(Outcome::GivenBack)),
        };
        self.say(|| {
            format!("orders writes down that payment {} is {to} (it was {})", payment.id.0 + 1, payment.status)
        });
        let operation = self.world.operation_mut(op);
        operation.payment = Some(Payment { status: to, ..payment });
        let is_final = operation.kept.is_some_and(|kept| kept.label == Label::Final);
        if outcome.is_some() && !is_final {
            let token = if operation.begun.0 > 0 { operation.begun } else { operation.token };
            operation.kept = Some(Kept { token, label: Label::Final, outcome });
        }
    }

    /// Gives up an open payment, unless a higher token has come or it is decided.
    pub fn give_up(&mut self, grant: Grant) -> Reply {
        let operation = self.world.operation(grant.op);
        match operation.kept {
            Some(kept) if kept.label == Label::Final => return kept.reply(),
            _ if operation.token > grant.token && !self.is_mutated(Mutation::IgnoreTokensInOrders) => {
                return Reply::Fenced;
            }
            _ => {}
        }
        let payment = self.world.operation_mut(grant.op).payment.as_mut().filter(|payment| payment.status.is_open());
        if let Some(payment) = payment {
            payment.status = PaymentStatus::Closed;
            let id = payment.id;
            self.show(Witness::PaymentClosed);
            self.say(|| format!("orders gives payment {} up", id.0 + 1));
        }
        Reply::Closed
    }

    /// The acquirer has acknowledged a refund.
    pub fn acknowledge_refund(&mut self, op: Op) {
        let Some(payment) = &mut self.world.operation_mut(op).payment else { return };
        if payment.status == PaymentStatus::RefundPending {
            payment.status = PaymentStatus::Refunded;
            self.show(Witness::Refunded);
        }
    }
}

impl std::fmt::Display for PaymentStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Closed => "closed",
            Self::RefundPending => "to be refunded",
            Self::Refunded => "refunded",
        })
    }
}
