//! What the acquirer knows: payments, refunds, and the events about them. Pure: no clock, no I/O, no waiting.
//!
//! A transition says what to answer and what is still to happen; the rest of the crate does the answering and the waiting.
//! A payment is captured only by [`Ledger::decide`], which takes a pending payment: charging once per id is the shape of
//! the data, not a check somebody could forget.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use crate::event::Event;
use crate::method::Method;

/// What a merchant asks for: the body of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Minor units.
    pub(crate) amount: u64,
    pub(crate) currency: String,
    pub(crate) method: Method,
}

/// Money going back: the body of a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refund {
    /// Minor units.
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

/// Where a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Decided(Decision),
}

/// What was decided about a payment, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Approved,
    Declined,
}

/// A payment as merchants see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) status: Status,
    pub(crate) charge: Charge,
    pub(crate) refunds: Vec<(String, Refund)>,
}

/// How a `PUT` of a payment is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With the payment as it is.
    Payment(Receipt),
    /// With the payment, as soon as it is decided.
    WhenDecided,
    /// Never; the connection stays open.
    Never,
    /// By closing the connection.
    Close,
    /// With an internal error.
    InternalError,
}

/// What a transition leaves to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Tell the merchant.
    Announce(Event),
    /// Call [`Ledger::mature`] for this payment after this long.
    MatureAfter(Duration),
}

/// Why a request is refused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this payment id was used with another amount, currency or method")]
    PaymentReused,
    #[error("this refund id was used with another amount or currency")]
    RefundReused,
    #[error("no such payment")]
    NoSuchPayment,
    #[error("no such event")]
    NoSuchEvent,
    #[error("only an approved payment can be refunded")]
    NotApproved,
    #[error("a refund is in the currency of its payment")]
    OtherCurrency,
    #[error("the refunds of a payment cannot exceed what was captured")]
    OverRefund,
    #[error("the payment was decided otherwise")]
    DecidedOtherwise,
}

/// What the control sees of a payment id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters {
    /// None while the acquirer holds no payment of that id, though it has heard of it.
    pub(crate) status: Option<Status>,
    /// Successful captures: 0 or 1.
    pub(crate) charges: u64,
    /// How often a merchant asked for the payment.
    pub(crate) queries: u64,
    pub(crate) refunds: usize,
}

/// Everything that moved. Wide enough to never overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) charges: u64,
    /// Minor units.
    pub(crate) captured: u128,
    /// Minor units.
    pub(crate) refunded: u128,
}

/// The acquirer's memory.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: HashMap<String, Entry>,
    events: HashMap<String, Event>,
    totals: Totals,
}

/// What is known under one payment id.
#[derive(Debug, Default)]
struct Entry {
    queries: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Heard of, but nothing is held.
    #[default]
    Unknown,
    /// Still on its way: nobody can see it before it lands.
    UnderWay(Charge),
    Held(Payment),
}

#[derive(Debug)]
struct Payment {
    charge: Charge,
    standing: Standing,
    refunds: BTreeMap<String, Refund>,
}

#[derive(Debug)]
enum Standing {
    Pending,
    Decided { decision: Decision, event_id: String },
}

// === impl Ledger ===

impl Ledger {
    /// Takes a payment once: whatever was started under this id stands, and is answered again to the same charge.
    pub(crate) fn pay(&mut self, id: &str, charge: Charge, now: SystemTime) -> Result<(Reply, Effect), Refusal> {
        let entry = self.entry(id);
        match &entry.state {
            State::Unknown => Ok(self.start(id, charge, now)),
            State::UnderWay(first) if *first == charge => Ok((Reply::Close, Effect::Nothing)),
            State::Held(payment) if payment.charge == charge => Ok((payment.repeat(), Effect::Nothing)),
            State::UnderWay(_) | State::Held(_) => Err(Refusal::PaymentReused),
        }
    }

    /// Approves a payment whose time has come: a slow one is decided, a late one lands. Any other is left alone.
    pub(crate) fn mature(&mut self, id: &str, now: SystemTime) -> Option<Event> {
        let entry = self.entries.get_mut(id)?;
        if let State::UnderWay(charge) = &entry.state {
            entry.state = State::Held(Payment::pending(charge.clone()));
        }
        self.decide(id, Decision::Approved, now)
    }

    /// Decides a pending payment by hand. Repeated with the same decision it answers the same event id, and no new event.
    pub(crate) fn settle(
        &mut self,
        id: &str,
        decision: Decision,
        now: SystemTime,
    ) -> Result<(String, Option<Event>), Refusal> {
        match &self.payment(id)?.standing {
            Standing::Decided { decision: earlier, event_id } if *earlier == decision => Ok((event_id.clone(), None)),
            Standing::Decided { .. } => Err(Refusal::DecidedOtherwise),
            Standing::Pending => {
                let event = self.decide(id, decision, now).expect("the payment is pending");
                Ok((event.id.clone(), Some(event)))
            }
        }
    }

    /// Gives money back once per refund id, and never more than was captured.
    pub(crate) fn refund(&mut self, id: &str, refund_id: &str, refund: Refund) -> Result<Refund, Refusal> {
        let payment = self.payment(id)?;
        if let Some(earlier) = payment.refunds.get(refund_id) {
            return if *earlier == refund { Ok(refund) } else { Err(Refusal::RefundReused) };
        }
        if payment.status() != Status::Decided(Decision::Approved) {
            return Err(Refusal::NotApproved);
        }
        if refund.currency != payment.charge.currency {
            return Err(Refusal::OtherCurrency);
        }
        let refunded: u64 = payment.refunds.values().map(|refund| refund.amount).sum();
        if refund.amount > payment.charge.amount - refunded {
            return Err(Refusal::OverRefund);
        }
        payment.refunds.insert(refund_id.to_owned(), refund.clone());
        self.totals.refunded += u128::from(refund.amount);
        Ok(refund)
    }

    /// Answers a merchant's question, and counts it, also when there is nothing to answer.
    pub(crate) fn query(&mut self, id: &str) -> Result<Receipt, Refusal> {
        let entry = self.entry(id);
        entry.queries += 1;
        match &entry.state {
            State::Held(payment) => Ok(payment.receipt()),
            State::Unknown | State::UnderWay(_) => Err(Refusal::NoSuchPayment),
        }
    }

    /// The payment as it is, for an answer that had to wait. Not counted as a question.
    pub(crate) fn receipt(&self, id: &str) -> Option<Receipt> {
        match &self.entries.get(id)?.state {
            State::Held(payment) => Some(payment.receipt()),
            State::Unknown | State::UnderWay(_) => None,
        }
    }

    pub(crate) fn counters(&self, id: &str) -> Option<Counters> {
        let entry = self.entries.get(id)?;
        let (status, refunds) = match &entry.state {
            State::Held(payment) => (Some(payment.status()), payment.refunds.len()),
            State::Unknown | State::UnderWay(_) => (None, 0),
        };
        let charges = u64::from(status == Some(Status::Decided(Decision::Approved)));
        Some(Counters { status, charges, queries: entry.queries, refunds })
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn event(&self, id: &str) -> Result<Event, Refusal> {
        self.events.get(id).cloned().ok_or(Refusal::NoSuchEvent)
    }

    fn start(&mut self, id: &str, charge: Charge, now: SystemTime) -> (Reply, Effect) {
        match charge.method {
            Method::Error => (Reply::InternalError, Effect::Nothing),
            Method::Drop => (Reply::Close, Effect::Nothing),
            Method::Late(delay) => {
                self.entry(id).state = State::UnderWay(charge);
                (Reply::Close, Effect::MatureAfter(delay))
            }
            Method::Pending => (Reply::Payment(self.hold(id, charge)), Effect::Nothing),
            Method::PendingChargeThenHang => {
                self.hold(id, charge);
                (Reply::Never, Effect::Nothing)
            }
            Method::Slow(delay) => {
                self.hold(id, charge);
                (Reply::WhenDecided, Effect::MatureAfter(delay))
            }
            Method::Approved => self.hold_and_decide(id, charge, Decision::Approved, now, Reply::Payment),
            Method::Declined => self.hold_and_decide(id, charge, Decision::Declined, now, Reply::Payment),
            Method::ChargeThenHang => self.hold_and_decide(id, charge, Decision::Approved, now, |_| Reply::Never),
            Method::ChargeThenDrop => self.hold_and_decide(id, charge, Decision::Approved, now, |_| Reply::Close),
        }
    }

    fn hold(&mut self, id: &str, charge: Charge) -> Receipt {
        let payment = Payment::pending(charge);
        let receipt = payment.receipt();
        self.entry(id).state = State::Held(payment);
        receipt
    }

    fn hold_and_decide(
        &mut self,
        id: &str,
        charge: Charge,
        decision: Decision,
        now: SystemTime,
        reply: impl FnOnce(Receipt) -> Reply,
    ) -> (Reply, Effect) {
        self.hold(id, charge);
        let event = self.decide(id, decision, now).expect("the payment was just held as pending");
        let receipt = self.receipt(id).expect("the payment was just held");
        (reply(receipt), Effect::Announce(event))
    }

    /// The one place where a payment is decided, and money is captured. None unless the payment is pending.
    fn decide(&mut self, id: &str, decision: Decision, now: SystemTime) -> Option<Event> {
        let payment = self.payment(id).ok()?;
        if !matches!(payment.standing, Standing::Pending) {
            return None;
        }
        let event = Event::new(id, &payment.charge, decision, now);
        payment.standing = Standing::Decided { decision, event_id: event.id.clone() };
        let amount = payment.charge.amount;
        if decision == Decision::Approved {
            self.totals.charges += 1;
            self.totals.captured += u128::from(amount);
        }
        self.events.insert(event.id.clone(), event.clone());
        Some(event)
    }

    fn entry(&mut self, id: &str) -> &mut Entry {
        self.entries.entry(id.to_owned()).or_default()
    }

    fn payment(&mut self, id: &str) -> Result<&mut Payment, Refusal> {
        match self.entries.get_mut(id).map(|entry| &mut entry.state) {
            Some(State::Held(payment)) => Ok(payment),
            Some(State::Unknown | State::UnderWay(_)) | None => Err(Refusal::NoSuchPayment),
        }
    }
}

// === impl Payment ===

impl Payment {
    fn pending(charge: Charge) -> Self {
        Payment { charge, standing: Standing::Pending, refunds: BTreeMap::new() }
    }

    fn status(&self) -> Status {
        match self.standing {
            Standing::Pending => Status::Pending,
            Standing::Decided { decision, .. } => Status::Decided(decision),
        }
    }

    fn receipt(&self) -> Receipt {
        let refunds = self.refunds.iter().map(|(id, refund)| (id.clone(), refund.clone())).collect();
        Receipt { status: self.status(), charge: self.charge.clone(), refunds }
    }

    /// A repeat of a slow payment gets the answer the first one gets, and like it waits for it. Any other is answered at
    /// once, also where the first was never answered: that fault belongs to the first request, not to the payment.
    fn repeat(&self) -> Reply {
        match (&self.standing, self.charge.method) {
            (Standing::Pending, Method::Slow(_)) => Reply::WhenDecided,
            _ => Reply::Payment(self.receipt()),
        }
    }
}
