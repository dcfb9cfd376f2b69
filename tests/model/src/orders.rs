//! The orders service's rows, and how every mutation begins and ends: the token first, the kept answer last.

use crate::{
    mutations::Mutation,
    names::{Grant, Intent, Op, OrderStatus, Outcome, PaymentId, Token},
    payment::Payment,
    properties::Rule,
    step::Step,
    witness::Witness,
    world::World,
};

/// The rows of an operation. Also of one that the orders service has not seen yet: then the token is zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    /// What it is for. The orders service does not know it; the rules do.
    pub intent: Intent,
    /// The highest token seen.
    pub token: Token,
    /// The token under which a payment was last sent; zero for none.
    pub begun: Token,
    /// The last answer given.
    pub kept: Option<Kept>,
    /// Its payment.
    pub payment: Option<Payment>,
}

/// An answer kept beside its operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kept {
    /// The token it was given to.
    pub token: Token,
    /// What the holder of the key does with it.
    pub label: Label,
    /// What it came to, if that is known.
    pub outcome: Option<Outcome>,
}

/// What the holder of the key does with an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Label {
    /// Decided for good.
    Final,
    /// Nothing happened.
    NoEffect,
    /// Not known.
    Unknown,
}

/// An order's row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    /// The operation that placed it; none for an order that was there before.
    pub made_by: Option<Op>,
    /// Where it stands.
    pub status: OrderStatus,
    /// The payment that paid it; none also when it was paid elsewhere.
    pub paid_by: Option<PaymentId>,
}

/// What the orders service answers to a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Decided for good.
    Final(Outcome),
    /// Nothing happened under this token.
    NoEffect(Outcome),
    /// Begun, and not decided by the acquirer: 202.
    Undecided,
    /// To a mutation: not known. To a look-up: not known anywhere, now.
    Unknown,
    /// To a look-up: the acquirer has not decided.
    Pending,
    /// To Close: given up, or there was nothing to give up.
    Closed,
    /// A higher token was seen.
    Fenced,
    /// No answer, or the acquirer could not be asked.
    Unreachable,
    /// The call never left the gateway.
    NeverLeft,
}

/// What is to be done with a mutation.
pub enum Entry {
    /// It acts.
    Act,
    /// It was answered before, or comes too late.
    Answered(Reply),
    /// The same token is at work on it.
    Running,
}

impl Operation {
    /// The rows of an operation that the orders service has not seen.
    pub fn unseen(intent: Intent) -> Self {
        Self { intent, token: Token(0), begun: Token(0), kept: None, payment: None }
    }
}

impl World {
    /// Is anything kept of what this operation did: an order, an open payment, or one that paid?
    pub fn has_effect(&self, op: Op) -> bool {
        let has_order = self.orders.iter().any(|order| order.made_by == Some(op));
        has_order || self.operation(op).payment.as_ref().is_some_and(Payment::has_effect)
    }
}

impl Kept {
    /// As its asker sees it.
    pub fn reply(self) -> Reply {
        match (self.label, self.outcome) {
            (Label::Final, Some(outcome)) => Reply::Final(outcome),
            (Label::NoEffect, Some(outcome)) => Reply::NoEffect(outcome),
            (Label::Unknown, Some(_)) => Reply::Undecided,
            (_, None) => Reply::Unknown,
        }
    }
}

impl Step<'_> {
    /// Raises the token of an operation; false when a higher one was seen.
    pub fn raise(&mut self, grant: Grant) -> bool {
        let ignores = self.is_mutated(Mutation::IgnoreTokensInOrders);
        let operation = self.world.operation_mut(grant.op);
        let before = operation.token;
        if before > grant.token && !ignores {
            return false;
        }
        operation.token = before.max(grant.token);
        true
    }

    /// Begins a mutation.
    pub fn enter(&mut self, grant: Grant) -> Entry {
        if !self.raise(grant) {
            self.say(|| format!("orders turns it away: {grant} is fenced"));
            self.show(Witness::FencedZombie);
            return Entry::Answered(Reply::Fenced);
        }
        let is_by_attempt = self.is_mutated(Mutation::OrderIdsFromAttempt);
        let operation = self.world.operation(grant.op);
        let entry = match operation.kept {
            Some(kept) if kept.token == grant.token => Entry::Answered(kept.reply()),
            Some(kept) if kept.label == Label::Final && !is_by_attempt => Entry::Answered(kept.reply()),
            _ if operation.begun == grant.token => Entry::Running,
            _ => Entry::Act,
        };
        match &entry {
            Entry::Answered(reply) => self.say(|| format!("orders has answered it before: {reply}")),
            Entry::Running => self.say(|| format!("orders is at work on it already under token {}", grant.token.0)),
            Entry::Act if self.world.operation(grant.op).token > grant.token => {
                self.break_rule(Rule::OldHoldersActNowhere)
            }
            Entry::Act => {}
        }
        entry
    }

    /// Keeps the answer given to this token; false when a higher token or a final answer is there, which then stands.
    pub fn keep(&mut self, grant: Grant, label: Label, outcome: Option<Outcome>) -> bool {
        let ignores = self.is_mutated(Mutation::IgnoreTokensInOrders);
        let is_by_attempt = self.is_mutated(Mutation::OrderIdsFromAttempt);
        let operation = self.world.operation_mut(grant.op);
        let is_final = operation.kept.is_some_and(|kept| kept.label == Label::Final);
        if (operation.token != grant.token && !ignores) || (is_final && !is_by_attempt) {
            return false;
        }
        operation.kept = Some(Kept { token: grant.token, label, outcome });
        true
    }

    /// Places the order: one transaction.
    pub fn place(&mut self, grant: Grant) -> Reply {
        match self.enter(grant) {
            Entry::Answered(reply) => return reply,
            // A transaction without steps is never seen running.
            Entry::Running => return Reply::Unknown,
            Entry::Act => {}
        }
        if !self.world.is_seat_free {
            self.say(|| "orders refuses: sold out".to_owned());
            self.keep(grant, Label::NoEffect, Some(Outcome::SoldOut));
            return Reply::NoEffect(Outcome::SoldOut);
        }
        self.world.is_seat_free = false;
        let number = self.world.orders.len() as u8;
        self.world.orders.push(Order { made_by: Some(grant.op), status: OrderStatus::Pending, paid_by: None });
        self.say(|| format!("orders places order {} under {grant}", number + 1));
        let outcome = Outcome::Ordered(number, OrderStatus::Pending);
        self.keep(grant, Label::Final, Some(outcome));
        Reply::Final(outcome)
    }

    /// What the rows alone say to a look-up, once the token is raised; none when they do not know.
    pub fn rows_say(&mut self, grant: Grant) -> Option<Reply> {
        if self.is_mutated(Mutation::AskOnlyTheAcquirer) {
            return None;
        }
        if !self.raise(grant) {
            self.say(|| format!("orders turns the question away: {grant} is fenced"));
            return Some(Reply::Fenced);
        }
        let is_by_attempt = self.is_mutated(Mutation::OrderIdsFromAttempt);
        let kept = self.world.operation(grant.op).kept?;
        match kept.label {
            Label::Final if !is_by_attempt || kept.token == grant.token => Some(self.rendered(kept)),
            // For its own token that is the answer; a higher one may execute.
            Label::NoEffect if kept.token == grant.token => Some(kept.reply()),
            _ => None,
        }
    }

    /// A kept answer, as it was kept.
    fn rendered(&self, kept: Kept) -> Reply {
        match kept.outcome {
            Some(Outcome::Ordered(order, _)) if self.is_mutated(Mutation::RenderTodaysRows) => {
                Reply::Final(Outcome::Ordered(order, self.world.orders[usize::from(order)].status))
            }
            _ => kept.reply(),
        }
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Final(outcome) | Self::NoEffect(outcome) => outcome.fmt(f),
            Self::Undecided => f.write_str("202, pending"),
            Self::Unknown => f.write_str("unknown"),
            Self::Pending => f.write_str("pending at the acquirer"),
            Self::Closed => f.write_str("given up"),
            Self::Fenced => f.write_str("fenced"),
            Self::Unreachable => f.write_str("no answer"),
            Self::NeverLeft => f.write_str("the call never left"),
        }
    }
}
