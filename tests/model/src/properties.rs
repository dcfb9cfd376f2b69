//! The rules, as properties of the model.

use stateright::{Model, Property};

use crate::{
    acquirer::Word,
    model::Protocol,
    names::{Intent, OrderStatus},
    register::KeyState,
    witness::Witness,
    world::World,
};

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Rule {
    /// An operation places at most one order.
    OneOrderPerOperation,
    /// An intent (a key in one generation) places at most one order.
    OneOrderPerIntent,
    /// The acquirer charges at most once under a payment id.
    OneChargePerPayment,
    /// An intent is charged at most once.
    OneChargePerIntent,
    /// An order that was paid at the acquirer was charged for there, by a charge that pays no other and has not gone back.
    PaidMeansCharged,
    /// A charge found on a payment that was given up never pays.
    GivenUpIsNeverKept,
    /// A charge goes back at most once.
    RefundedOnce,
    /// A stored answer never changes until its retention is over.
    StoredNeverChanges,
    /// Every final answer that is given or stored for an intent is the same one.
    OneAnswer,
    /// Who is refused, or told that nothing happened, is told the truth: nothing was kept of the intent at that moment.
    RefusalsAreTrue,
    /// A key is released only when nothing happened, and then nothing does: no order, no open payment, no kept charge.
    ReleasedMeansNothing,
    /// A holder by Reclaim executes nothing before the answer of its look-up is in.
    AskFirst,
    /// Who carries a lower token than the orders service has seen makes it do nothing.
    OldHoldersActNowhere,
    /// A grant raises the token, and no token ever falls while its record lives, in the register and in the orders service.
    TokensGrow,
    /// Once faults stop, every key is completed or released.
    KeysSettle,
    /// Once faults stop, what was captured and not refunded is what orders were paid with, and no payment is open.
    MoneySettles,
}

impl Rule {
    /// Every rule, with its name as a property.
    pub const ALL: [(Rule, &'static str); 16] = [
        (Rule::OneOrderPerOperation, "at most one order per operation"),
        (Rule::OneOrderPerIntent, "at most one order per intent"),
        (Rule::OneChargePerPayment, "at most one successful charge per payment id"),
        (Rule::OneChargePerIntent, "at most one successful charge per intent"),
        (Rule::PaidMeansCharged, "a paid order has a charge of its own"),
        (Rule::GivenUpIsNeverKept, "a charge on a given-up payment is never kept"),
        (Rule::RefundedOnce, "a charge goes back at most once"),
        (Rule::StoredNeverChanges, "a stored answer never changes"),
        (Rule::OneAnswer, "an intent has one final answer"),
        (Rule::RefusalsAreTrue, "a refusal is true when it is given"),
        (Rule::ReleasedMeansNothing, "a released key means that nothing happened"),
        (Rule::AskFirst, "no execution before the answers of a recovery are in"),
        (Rule::OldHoldersActNowhere, "an old holder acts nowhere"),
        (Rule::TokensGrow, "tokens only grow"),
        (Rule::KeysSettle, "every key settles once faults stop"),
        (Rule::MoneySettles, "all money settles once faults stop"),
    ];

    /// Its name as a property.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Its bit in a state.
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Is it about what must come in the end, rather than about what must never be?
    pub fn is_eventual(self) -> bool {
        matches!(self, Self::KeysSettle | Self::MoneySettles)
    }
}

/// The rules as properties; with `witnesses`, also what must be seen.
pub fn properties(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut all: Vec<Property<Protocol>> = Rule::ALL.iter().map(|(rule, _)| property(*rule)).collect();
    if protocol.mutation.is_none() {
        let workload = protocol.configuration.workload;
        let seen = Witness::ALL.into_iter().filter(|(witness, _)| witness.is_of(workload));
        all.extend(seen.map(|(witness, name)| sighting(witness, name)));
    }
    all
}

/// Is this rule kept in this state? For a rule about the end: is it the end, and is it as it should be?
pub fn is_kept(rule: Rule, protocol: &Protocol, world: &World) -> bool {
    (property(rule).condition)(protocol, world)
}

fn property(rule: Rule) -> Property<Protocol> {
    let name = rule.name();
    // Conditions are function pointers, so that each is spelled out. What can be seen in a state is judged there; what only a
    // step shows has been written down by the step.
    match rule {
        Rule::OneOrderPerOperation => Property::always(name, |_, w: &World| {
            w.orders
                .iter()
                .all(|a| a.made_by.is_none() || w.orders.iter().filter(|b| b.made_by == a.made_by).count() == 1)
        }),
        Rule::OneOrderPerIntent => Property::always(name, |_, w: &World| {
            intents(w).all(|intent| {
                w.orders.iter().filter(|order| order.made_by.is_some_and(|op| w.intent(op) == intent)).count() <= 1
            })
        }),
        Rule::OneChargePerPayment => Property::always(name, |_, w: &World| w.accounts.iter().all(|a| a.charges <= 1)),
        Rule::OneChargePerIntent => Property::always(name, |_, w: &World| {
            intents(w).all(|intent| {
                w.accounts.iter().filter(|a| w.intent(a.op) == intent).map(|a| a.charges).sum::<u8>() <= 1
            })
        }),
        Rule::PaidMeansCharged => Property::always(name, |_, w: &World| paid_means_charged(w)),
        Rule::GivenUpIsNeverKept => Property::always(name, |_, w: &World| !w.has_broken(Rule::GivenUpIsNeverKept)),
        Rule::RefundedOnce => {
            Property::always(name, |_, w: &World| w.accounts.iter().all(|account| account.refunds.count_ones() <= 1))
        }
        Rule::StoredNeverChanges => Property::always(name, |_, w: &World| !w.has_broken(Rule::StoredNeverChanges)),
        Rule::OneAnswer => Property::always(name, |_, w: &World| !w.has_broken(Rule::OneAnswer)),
        Rule::RefusalsAreTrue => Property::always(name, |_, w: &World| !w.has_broken(Rule::RefusalsAreTrue)),
        Rule::ReleasedMeansNothing => Property::always(name, |_, w: &World| match &w.key {
            Some(key) if key.state == KeyState::Released => !w.has_effect(key.op),
            _ => true,
        }),
        Rule::AskFirst => Property::always(name, |_, w: &World| !w.has_broken(Rule::AskFirst)),
        Rule::OldHoldersActNowhere => Property::always(name, |_, w: &World| !w.has_broken(Rule::OldHoldersActNowhere)),
        Rule::TokensGrow => Property::always(name, |_, w: &World| !w.has_broken(Rule::TokensGrow)),
        // True at the end only, so that it makes no difference by which path a state was reached: see the README on `eventually`.
        Rule::KeysSettle => Property::eventually(name, |p, w: &World| keys_are_settled(w) && is_at_rest(p, w)),
        Rule::MoneySettles => Property::eventually(name, |p, w: &World| money_is_settled(w) && is_at_rest(p, w)),
    }
}

/// One function for every witness: a condition cannot remember which it is.
fn sighting(witness: Witness, name: &'static str) -> Property<Protocol> {
    macro_rules! seen {
        ($($which:ident),*) => {
            match witness {
                $(Witness::$which => Property::sometimes(name, |_, world: &World| world.shows(Witness::$which)),)*
            }
        };
    }
    seen!(
        FencedZombie,
        Superseded,
        SupersededRefusal,
        Replay,
        Reclaimed,
        RecoveredAnswer,
        ReconcilerCompleted,
        ReconcilerReleased,
        ExecutedAfterRelease,
        RefusalTold,
        ToldBeforeStored,
        EndedAttempt,
        NewGeneration,
        PaymentClosed,
        PaymentReopened,
        ClosedPaymentCharged,
        Refunded,
        PaymentResumed,
        LateCreate,
        PendingTold,
        SeatTakenAgain,
        SeatGone
    )
}

fn intents(world: &World) -> impl Iterator<Item = Intent> {
    (0..=world.generation.0).map(Intent)
}

fn paid_means_charged(world: &World) -> bool {
    let paid = || world.orders.iter().filter_map(|order| order.paid_by);
    world.orders.iter().all(|order| {
        let Some(payment) = order.paid_by else { return true };
        let is_charged = world
            .account(payment)
            .is_some_and(|account| account.word == Word::Approved && account.charges > 0 && account.refunds == 0);
        is_charged && paid().filter(|other| *other == payment).count() == 1
    })
}

fn keys_are_settled(world: &World) -> bool {
    world.key.as_ref().is_none_or(|key| matches!(key.state, KeyState::Completed(_) | KeyState::Released))
}

fn money_is_settled(world: &World) -> bool {
    let kept =
        |payment| world.orders.iter().any(|order| order.status == OrderStatus::Paid && order.paid_by == Some(payment));
    let is_even = |charges: u8, refunds: u32, kept: bool| u32::from(charges) == refunds + u32::from(kept);
    let nothing_open = world
        .operations
        .iter()
        .filter_map(|operation| operation.payment.as_ref())
        .all(|payment| !payment.status.is_open());
    nothing_open && world.accounts.iter().all(|a| is_even(a.charges, a.refunds.count_ones(), kept(a.id)))
}

/// Nothing can happen any more.
fn is_at_rest(protocol: &Protocol, world: &World) -> bool {
    let mut actions = Vec::new();
    protocol.actions(world, &mut actions);
    actions.is_empty()
}
