//! One state of everything: what every store holds, where every process is, what is on its way, and which faults are left.

use std::hash::{Hash, Hasher};

use crate::{
    acquirer::Account,
    configuration::Left,
    gateway::Task,
    names::{Attempt, Intent, Op, Outcome, PaymentId},
    network::Message,
    orders::{Operation, Order},
    properties::Rule,
    register::{Ask, Key},
    session::Session,
    witness::Witness,
};

/// The state of the model.
#[derive(Clone, Debug)]
pub struct World {
    /// The register's record of the one key.
    pub key: Option<Key>,
    /// The orders service's rows of operations, by number. Also those that it has never seen.
    pub operations: Vec<Operation>,
    /// Its rows of orders.
    pub orders: Vec<Order>,
    /// The one seat there is, is free.
    pub is_seat_free: bool,
    /// What the acquirer knows, by payment id.
    pub accounts: Vec<Account>,
    /// The gateways, and the reconciler as the last.
    pub tasks: Vec<Task>,
    /// What the orders service is in the middle of.
    pub sessions: Vec<Session>,
    /// Calls that are still on their way while nobody waits for them any more.
    pub flight: Vec<Message>,
    /// What may still go wrong or happen by itself.
    pub left: Left,
    /// The key's generation: raised when a retention ends.
    pub generation: Intent,
    /// The first final answer that any client was given, by intent.
    pub told: Vec<Option<Outcome>>,
    /// Rules that a step has broken; a bit each.
    pub broken: u32,
    /// What the last step showed. Not part of the state's identity: it is of interest only that it can be seen at all.
    pub shown: u32,
}

impl World {
    /// The intent of an operation.
    pub fn intent(&self, op: Op) -> Intent {
        self.operations[usize::from(op.0)].intent
    }

    /// The rows of an operation.
    pub fn operation(&self, op: Op) -> &Operation {
        &self.operations[usize::from(op.0)]
    }

    /// The rows of an operation, to be written.
    pub fn operation_mut(&mut self, op: Op) -> &mut Operation {
        &mut self.operations[usize::from(op.0)]
    }

    /// What the acquirer knows about a payment id.
    pub fn account(&self, id: PaymentId) -> Option<&Account> {
        self.accounts.iter().find(|account| account.id == id)
    }

    /// A step has broken this rule.
    pub fn has_broken(&self, rule: Rule) -> bool {
        self.broken & rule.bit() != 0
    }

    /// The last step showed this.
    pub fn shows(&self, witness: Witness) -> bool {
        self.shown & witness.bit() != 0
    }

    /// A name for a try that nobody has used, or nobody can remember.
    pub fn fresh_attempt(&self) -> Attempt {
        let used = self.nameable_attempts();
        let free = (1..32).find(|attempt| used & (1 << attempt) == 0);
        Attempt(free.expect("there are never that many tries at once"))
    }

    /// Attempts that a message or a process can still name; a bit each.
    fn nameable_attempts(&self) -> u32 {
        let asked = self.flight.iter().filter_map(|message| match message {
            Message::Register(Ask::Reserve(attempt) | Ask::Reclaim(_, attempt)) => Some(*attempt),
            _ => None,
        });
        asked.chain(self.tasks.iter().filter_map(Task::attempt)).fold(0, |used, attempt| used | 1 << attempt.0)
    }

    /// Brings what means the same into one form: sets are sorted, and attempts that nobody can name any more are forgotten.
    pub fn normalise(&mut self) {
        self.sessions.sort_unstable();
        self.flight.sort_unstable();
        let used = self.nameable_attempts();
        if let Some(key) = &mut self.key {
            key.past &= used;
            if used & (1 << key.attempt.0) == 0 {
                key.attempt = Attempt::FORGOTTEN;
            }
        }
    }

    /// Everything but what the last step showed.
    fn identity(&self) -> impl Hash + PartialEq + '_ {
        (
            (&self.key, &self.operations, &self.orders, self.is_seat_free, &self.accounts, &self.tasks),
            (&self.sessions, &self.flight, &self.left, self.generation, &self.told, self.broken),
        )
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.identity().hash(hasher);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for World {}
