//! Holders of keys: a gateway's operation task for one request, and the reconciler. Where each is, and what it does with what it hears.
//!
//! A holder that sleeps is one that takes no step while others do; every schedule is tried, so every sleep is.

use crate::{
    configuration::Workload,
    mutations::Mutation,
    names::{Attempt, Grant, Outcome, Who},
    network::{Fate, Message},
    orders::Reply,
    properties::Rule,
    register::{Ask, Heard},
    step::Step,
    witness::Witness,
};

/// Where a holder is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Task {
    /// It has nothing to do.
    Idle,
    /// Its Reserve was not answered: it repeats it.
    Reserving(Attempt),
    /// It has seen a stale key, and takes over from its holder.
    Reclaiming(Grant, Attempt),
    /// It is about to ask the orders service.
    Asking(Grant, Why),
    /// The orders service is at its question.
    AwaitingFound(Grant, Why),
    /// It is about to execute. True when it owed a question, and has its answer.
    Executing(Grant, Duty),
    /// The orders service is at its request.
    AwaitingAnswer(Grant, Duty),
    /// It is about to say to the register how it ended.
    Finishing(Grant, Closing),
    /// The client has its answer; the register still has to be told.
    Saying(Grant, Closing),
}

/// Why a holder asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Why {
    /// It took the key over: what did the former holder do?
    Recovery,
    /// What became of its own call?
    OwnCall,
    /// The reconciler is about to release what is unknown: give it up.
    GiveUp,
}

/// What a holder owes before it executes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Duty {
    /// Nothing: nobody has held the key before, or it was released.
    None,
    /// A question, which was answered.
    Asked,
    /// A question, which was not answered.
    Owed,
}

/// How a holder ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Closing {
    /// With this answer.
    Complete(Outcome),
    /// Nothing happened, and why.
    Release(Outcome),
    /// Unknown.
    Abandon,
}

impl Task {
    /// The attempt it may still name.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::Reserving(attempt) | Self::Reclaiming(_, attempt) => Some(*attempt),
            _ => None,
        }
    }

    /// The grant it acts under.
    pub fn grant(&self) -> Option<Grant> {
        match self {
            Self::Idle | Self::Reserving(_) | Self::Reclaiming(..) => None,
            Self::Asking(grant, _)
            | Self::AwaitingFound(grant, _)
            | Self::Executing(grant, _)
            | Self::AwaitingAnswer(grant, _)
            | Self::Finishing(grant, _)
            | Self::Saying(grant, _) => Some(*grant),
        }
    }

    /// The orders service is at work for it.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::AwaitingFound(..) | Self::AwaitingAnswer(..))
    }
}

impl Step<'_> {
    fn task(&self, who: Who) -> Task {
        self.world.tasks[usize::from(who.0)]
    }

    fn becomes(&mut self, who: Who, task: Task) {
        self.world.tasks[usize::from(who.0)] = task;
    }

    fn is_reconciler(&self, who: Who) -> bool {
        usize::from(who.0) + 1 == self.world.tasks.len()
    }

    /// For traces.
    pub fn name(&self, who: Who) -> String {
        if self.is_reconciler(who) {
            "the reconciler".to_owned()
        } else {
            format!("gateway {}", char::from(b'A' + who.0))
        }
    }

    /// A holder's next call, and what becomes of it.
    pub fn call(&mut self, who: Who, fate: Fate) {
        self.say_if_old(who);
        match self.task(who) {
            Task::Idle if self.is_reconciler(who) => self.begin_round(who, fate),
            Task::Idle => {
                self.world.left.requests -= 1;
                let attempt = self.world.fresh_attempt();
                self.reserve(who, attempt, fate);
            }
            Task::Reserving(attempt) => self.reserve(who, attempt, fate),
            Task::Reclaiming(seen, attempt) => self.reclaim(who, seen, attempt, fate),
            Task::Asking(grant, why) => self.ask(who, grant, why, fate),
            Task::Executing(grant, duty) => self.execute(who, grant, duty, fate),
            Task::Finishing(grant, closing) => self.finish(who, grant, closing, fate),
            Task::Saying(grant, closing) => self.say_again(who, grant, closing),
            Task::AwaitingFound(..) | Task::AwaitingAnswer(..) => {}
        }
    }

    fn say_if_old(&mut self, who: Who) {
        let held = self.task(who).grant();
        let now = self.world.key.as_ref().map(|key| key.grant());
        if let Some(held) = held.filter(|held| Some(*held) != now) {
            let name = self.name(who);
            self.say(|| format!("{name} wakes, still with {held}"));
        }
    }

    // === getting the key ===

    fn reserve(&mut self, who: Who, attempt: Attempt, fate: Fate) {
        let name = self.name(who);
        self.say(|| format!("{name} reserves the key{}", fate.words()));
        self.becomes(who, Task::Reserving(attempt));
        let heard = self.send_to_register(Ask::Reserve(attempt), fate);
        if fate == Fate::LateAndDead {
            return self.becomes(who, Task::Idle);
        }
        let next = match heard {
            Some(Heard::Granted(grant, must_ask)) => self.with_grant(who, grant, must_ask),
            Some(Heard::Stale(seen)) => Task::Reclaiming(seen, Attempt::FORGOTTEN),
            Some(Heard::Replay(outcome)) => {
                self.show(Witness::Replay);
                self.tell_replay(outcome);
                Task::Idle
            }
            Some(_) => Task::Idle,
            None => return,
        };
        self.becomes(who, next);
        if let Task::Reclaiming(seen, _) = next {
            // The one that met the stale key was granted nothing: taking over is another try.
            let attempt = self.world.fresh_attempt();
            self.becomes(who, Task::Reclaiming(seen, attempt));
        }
    }

    /// The client hears what is stored: of the generation in which it is answered, whenever it asked.
    pub fn tell_replay(&mut self, outcome: Outcome) {
        let op = self.world.key.as_ref().map(|key| key.op);
        if let Some(op) = op {
            self.tell_final(self.world.intent(op), outcome);
        }
    }

    fn begin_round(&mut self, who: Who, fate: Fate) {
        let Some(key) = &self.world.key else { return };
        let seen = key.grant();
        let attempt = self.world.fresh_attempt();
        self.reclaim(who, seen, attempt, fate);
    }

    fn reclaim(&mut self, who: Who, seen: Grant, attempt: Attempt, fate: Fate) {
        let name = self.name(who);
        self.say(|| format!("{name} takes the key over from {seen}{}", fate.words()));
        self.becomes(who, Task::Reclaiming(seen, attempt));
        let heard = self.send_to_register(Ask::Reclaim(seen, attempt), fate);
        if fate == Fate::LateAndDead {
            return self.becomes(who, Task::Idle);
        }
        let next = match heard {
            Some(Heard::Granted(grant, must_ask)) => {
                if !self.is_reconciler(who) {
                    self.show(Witness::Reclaimed);
                }
                self.with_grant(who, grant, must_ask)
            }
            Some(Heard::Replay(outcome)) => {
                if !self.is_reconciler(who) {
                    self.tell_replay(outcome);
                }
                Task::Idle
            }
            Some(_) => Task::Idle,
            None => return,
        };
        self.becomes(who, next);
    }

    fn with_grant(&mut self, who: Who, grant: Grant, must_ask: bool) -> Task {
        let asks = self.is_reconciler(who) || !self.is_mutated(Mutation::ExecuteBeforeAsking);
        match (must_ask, asks) {
            (true, true) => Task::Asking(grant, Why::Recovery),
            (true, false) => Task::Executing(grant, Duty::Owed),
            (false, _) => {
                if grant.token.0 > 1 && self.world.operation(grant.op).token.0 > 0 {
                    self.show(Witness::ExecutedAfterRelease);
                }
                Task::Executing(grant, Duty::None)
            }
        }
    }

    // === asking and executing ===

    fn ask(&mut self, who: Who, grant: Grant, why: Why, fate: Fate) {
        let (name, words) = (self.name(who), fate.words());
        let message = match why {
            Why::Recovery | Why::OwnCall => {
                self.say(|| format!("{name} asks orders what happened to {grant}{words}"));
                Message::LookUp(grant)
            }
            Why::GiveUp => {
                self.say(|| format!("{name} has orders give {grant} up{words}"));
                Message::Close(grant)
            }
        };
        if fate.leaves_copy() {
            self.world.flight.push(message);
        }
        self.becomes(who, Task::AwaitingFound(grant, why));
        match (message, fate.arrives()) {
            (Message::Close(_), true) => self.receive_close(grant, Some(who)),
            (_, true) => self.receive_look_up(grant, Some(who)),
            (_, false) => self.reply(Some(who), Reply::Unreachable),
        }
    }

    fn execute(&mut self, who: Who, grant: Grant, duty: Duty, fate: Fate) {
        if duty == Duty::Owed {
            self.break_rule(Rule::AskFirst);
        }
        let workload = self.protocol.configuration.workload;
        let name = self.name(who);
        let (message, verb) = match workload {
            Workload::Orders => (Message::Place(grant), "place the order"),
            Workload::Payments => (Message::Pay(grant), "pay the order"),
        };
        self.say(|| format!("{name} has orders {verb} under {grant}{}", fate.words()));
        if fate.leaves_copy() {
            self.world.flight.push(message);
        }
        self.becomes(who, Task::AwaitingAnswer(grant, duty));
        if fate == Fate::LateAndDead {
            return self.becomes(who, Task::Idle);
        }
        if !fate.arrives() {
            let reply = if fate == Fate::NeverLeft { Reply::NeverLeft } else { Reply::Unreachable };
            return self.reply(Some(who), reply);
        }
        match workload {
            Workload::Orders => {
                let reply = self.place(grant);
                self.reply(Some(who), if fate.is_heard() { reply } else { Reply::Unreachable });
            }
            Workload::Payments => self.receive_pay(grant, Some(who)),
        }
    }

    /// The orders service answers whoever waits.
    pub fn reply(&mut self, caller: Option<Who>, reply: Reply) {
        let Some(who) = caller else { return };
        let name = self.name(who);
        let next = match self.task(who) {
            Task::AwaitingAnswer(grant, duty) => {
                self.say(|| format!("{name} hears from orders: {reply}"));
                self.after_execution(grant, duty, reply)
            }
            Task::AwaitingFound(grant, why) => {
                self.say(|| format!("{name} hears from orders: {reply}"));
                self.after_question(who, grant, why, reply)
            }
            other => other,
        };
        self.becomes(who, next);
    }

    fn after_execution(&mut self, grant: Grant, duty: Duty, reply: Reply) -> Task {
        match reply {
            Reply::Final(outcome) => Task::Finishing(grant, Closing::Complete(outcome)),
            Reply::NoEffect(outcome) => Task::Finishing(grant, Closing::Release(outcome)),
            // Nothing happened under this token. What a former holder did is another question, and it was answered `unknown`.
            Reply::NeverLeft if duty == Duty::None || self.is_mutated(Mutation::ReleaseWhatNeverLeft) => {
                Task::Finishing(grant, Closing::Release(Outcome::NotSent))
            }
            Reply::NeverLeft => Task::Finishing(grant, Closing::Abandon),
            Reply::Undecided => {
                self.show(Witness::PendingTold);
                Task::Finishing(grant, Closing::Abandon)
            }
            Reply::Unknown | Reply::Pending | Reply::Closed | Reply::Fenced | Reply::Unreachable => {
                Task::Asking(grant, Why::OwnCall)
            }
        }
    }

    fn after_question(&mut self, who: Who, grant: Grant, why: Why, reply: Reply) -> Task {
        let is_reconciler = self.is_reconciler(who);
        match (why, reply) {
            (_, Reply::Final(outcome)) => {
                self.show(Witness::RecoveredAnswer);
                Task::Finishing(grant, Closing::Complete(outcome))
            }
            (Why::Recovery, Reply::NoEffect(outcome)) => Task::Finishing(grant, Closing::Release(outcome)),
            (Why::Recovery, Reply::Unknown) if !is_reconciler => Task::Executing(grant, Duty::Asked),
            (Why::Recovery, Reply::Unknown) if self.is_mutated(Mutation::ReleaseWithoutClosing) => {
                Task::Finishing(grant, Closing::Release(Outcome::NotSent))
            }
            // Nobody has a body to execute with.
            (Why::Recovery, Reply::Unknown) => Task::Asking(grant, Why::GiveUp),
            (Why::GiveUp, Reply::Closed) => Task::Finishing(grant, Closing::Release(Outcome::NotSent)),
            (Why::OwnCall, Reply::Unknown) if self.is_mutated(Mutation::ReleaseAfterUnknown) => {
                Task::Finishing(grant, Closing::Release(Outcome::NotSent))
            }
            // Its own call may be the one that is still on its way: never released.
            _ => Task::Finishing(grant, Closing::Abandon),
        }
    }

    /// The caller's patience is over while the orders service is still at it.
    pub fn give_up_waiting(&mut self, who: Who) {
        let name = self.name(who);
        self.say(|| format!("{name} waits no longer; orders is still at it"));
        self.leave_sessions(who);
        self.reply(Some(who), Reply::Unreachable);
    }

    /// The process is killed.
    pub fn crash(&mut self, who: Who) {
        let name = self.name(who);
        self.say(|| format!("{name} is killed"));
        self.leave_sessions(who);
        self.becomes(who, Task::Idle);
    }
}
