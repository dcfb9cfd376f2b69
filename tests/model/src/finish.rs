//! How a holder ends: what it says to the register, and what the client is told when that is accepted, refused, or not heard.

use crate::{
    gateway::{Closing, Task},
    mutations::Mutation,
    names::{Grant, Op, Outcome, Who},
    network::{Fate, Message},
    orders::Operation,
    properties::Rule,
    register::{self, Ask, Heard, KeyState},
    step::Step,
    witness::Witness,
};

impl Step<'_> {
    /// Says to the register how it ended. A client is answered when that stands; and all the same when it cannot be said.
    pub fn finish(&mut self, who: Who, grant: Grant, closing: Closing, fate: Fate) {
        let name = self.name(who);
        self.say(|| format!("{name} {}{}", words(closing), fate.words()));
        let heard = self.send_to_register(ask(grant, closing), fate);
        if fate == Fate::LateAndDead {
            self.world.tasks[usize::from(who.0)] = Task::Idle;
            return;
        }
        let is_reconciler = usize::from(who.0) + 1 == self.world.tasks.len();
        let next = match heard {
            Some(heard) => {
                self.after_finish(grant, closing, heard, is_reconciler);
                Task::Idle
            }
            // Nobody waits: it is left to the next round. An abandoned key that was not said to be is found by its lease.
            None if is_reconciler || closing == Closing::Abandon => Task::Idle,
            None => {
                self.tell_unsaid(grant, closing);
                Task::Saying(grant, closing)
            }
        };
        self.world.tasks[usize::from(who.0)] = next;
    }

    fn after_finish(&mut self, grant: Grant, closing: Closing, heard: Heard, is_reconciler: bool) {
        let intent = self.world.intent(grant.op);
        match (closing, heard) {
            (Closing::Complete(_), Heard::Done) if is_reconciler => self.show(Witness::ReconcilerCompleted),
            (Closing::Release(_), Heard::Done) if is_reconciler => self.show(Witness::ReconcilerReleased),
            (_, _) if is_reconciler => {}
            (Closing::Complete(outcome), Heard::Done) => self.tell_final(intent, outcome),
            (Closing::Release(outcome), Heard::Done) => {
                self.show(Witness::RefusalTold);
                self.tell_refusal(intent, outcome);
            }
            (closing, Heard::Superseded(stored)) => {
                self.show(Witness::Superseded);
                let Closing::Release(refusal) = closing else { return self.tell_stored(stored) };
                self.show(Witness::SupersededRefusal);
                if self.is_mutated(Mutation::RefuseAlthoughSuperseded) {
                    return self.tell_refusal(intent, refusal);
                }
                self.tell_stored(stored);
            }
            _ => {}
        }
    }

    fn tell_stored(&mut self, stored: Option<Outcome>) {
        self.say(|| "it discards its own answer".to_owned());
        if let Some(stored) = stored {
            self.tell_replay(stored);
        }
    }

    /// The register cannot be reached.
    fn tell_unsaid(&mut self, grant: Grant, closing: Closing) {
        let intent = self.world.intent(grant.op);
        match closing {
            Closing::Complete(outcome) => {
                self.show(Witness::ToldBeforeStored);
                self.tell_final(intent, outcome);
            }
            Closing::Release(_) if self.is_mutated(Mutation::SayNothingHappenedUnreleased) => {
                self.tell_refusal(intent, Outcome::NotSent);
            }
            // 503, in doubt: it promises nothing.
            Closing::Release(_) | Closing::Abandon => {}
        }
    }

    /// Says it once more, when nobody waits for the answer any more.
    pub fn say_again(&mut self, who: Who, grant: Grant, closing: Closing) {
        let name = self.name(who);
        self.say(|| format!("{name} {}, which could not be said before", words(closing)));
        self.send_to_register(ask(grant, closing), Fate::Arrives);
        self.world.tasks[usize::from(who.0)] = Task::Idle;
    }

    /// Sends a call to the register; none when no answer is heard.
    pub fn send_to_register(&mut self, ask: Ask, fate: Fate) -> Option<Heard> {
        if fate.leaves_copy() {
            self.world.flight.push(Message::Register(ask));
        }
        let heard = fate.arrives().then(|| self.register(ask));
        heard.filter(|_| fate.is_heard())
    }

    /// A call arrives at the register of which nobody hears the answer.
    pub fn register_late(&mut self, ask: Ask) {
        let is_of_ended_attempt = match (&self.world.key, ask) {
            (Some(key), Ask::Reserve(attempt)) => key.past & (1 << attempt.0) != 0,
            _ => false,
        };
        if let Heard::Stale(_) = self.register(ask)
            && is_of_ended_attempt
        {
            self.show(Witness::EndedAttempt);
        }
    }

    /// A call arrives at the register.
    pub fn register(&mut self, ask: Ask) -> Heard {
        let before = self.world.key.clone();
        let fresh = Op(self.world.operations.len() as u8);
        let (after, heard) = register::carry_out(before.as_ref(), ask, fresh, self.protocol.mutation);
        if after.as_ref().is_some_and(|key| key.op == fresh) {
            if fresh.0 > 0 {
                self.show(Witness::NewGeneration);
            }
            self.world.operations.push(Operation::unseen(self.world.generation));
        }
        self.check_tokens(before.as_ref(), after.as_ref(), heard);
        if let Some(KeyState::Completed(stored)) = before.as_ref().filter(|key| !key.is_over()).map(|key| key.state)
            && after.as_ref().map(|key| key.state) != Some(KeyState::Completed(stored))
        {
            self.break_rule(Rule::StoredNeverChanges);
        }
        self.world.key = after;
        self.check_stored();
        self.say(|| match heard {
            Heard::Granted(grant, true) => format!("the register grants {grant}: ask first"),
            Heard::Granted(grant, false) => format!("the register grants {grant}"),
            Heard::Replay(outcome) => format!("the register replays: {outcome}"),
            Heard::InProgress => "the register says: in progress".to_owned(),
            Heard::Stale(grant) => format!("the register says: stale ({grant})"),
            Heard::Done => "the register accepts".to_owned(),
            Heard::Superseded(_) => "the register says: superseded".to_owned(),
        });
        heard
    }

    fn check_tokens(&mut self, before: Option<&register::Key>, after: Option<&register::Key>, heard: Heard) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let has_fallen = after.token < before.token;
        // A repeat of a grant changes nothing; any other grant is a new one.
        let is_new_grant = matches!(heard, Heard::Granted(..)) && after != before;
        if has_fallen || (is_new_grant && after.token == before.token) {
            self.break_rule(Rule::TokensGrow);
        }
    }
}

fn ask(grant: Grant, closing: Closing) -> Ask {
    match closing {
        Closing::Complete(outcome) => Ask::Complete(grant, outcome),
        Closing::Release(_) => Ask::Release(grant),
        Closing::Abandon => Ask::Abandon(grant),
    }
}

fn words(closing: Closing) -> String {
    match closing {
        Closing::Complete(outcome) => format!("completes the key: {outcome}"),
        Closing::Release(_) => "releases the key".to_owned(),
        Closing::Abandon => "puts the key in doubt".to_owned(),
    }
}
