//! What the orders service is in the middle of: work that asks the acquirer between two transactions, and may be cut off there.

use crate::{
    acquirer::Word,
    mutations::Mutation,
    names::{Grant, Op, Outcome, Who},
    network::{Fate, Message},
    orders::{Label, Reply},
    payment::{Begun, PaymentStatus},
    step::Step,
};

/// One call in progress.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Session {
    /// Under which grant.
    pub grant: Grant,
    /// Who waits for the answer, if anybody still does.
    pub caller: Option<Who>,
    /// What comes next.
    pub work: Work,
}

/// What a session does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Work {
    /// Send the charge.
    Charge,
    /// Ask once what became of the charge that was not answered.
    Find,
    /// Write down what became of the charge, and answer.
    Conclude(Learnt),
    /// Ask the acquirer.
    Ask(Purpose),
    /// Write down what it said, and answer.
    Write(Purpose, Learnt),
}

/// Why the acquirer is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// A holder asks what happened.
    LookUp,
    /// The reconciler is about to give up.
    Close,
}

/// What was heard from the acquirer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Learnt {
    /// It knows the payment.
    Word(Word),
    /// It does not know it now.
    NotFound,
    /// It did not answer.
    Unreachable,
}

impl Step<'_> {
    /// A payment arrives.
    pub fn receive_pay(&mut self, grant: Grant, caller: Option<Who>) {
        match self.begin_payment(grant) {
            Begun::Answered(reply) => self.reply(caller, reply),
            Begun::Send => self.open_session(Session { grant, caller, work: Work::Charge }),
        }
    }

    /// A look-up arrives: the fence, then the rows.
    pub fn receive_look_up(&mut self, grant: Grant, caller: Option<Who>) {
        if let Some(reply) = self.rows_say(grant) {
            return self.reply(caller, reply);
        }
        match self.world.operation(grant.op).payment {
            Some(_) => self.open_session(Session { grant, caller, work: Work::Ask(Purpose::LookUp) }),
            None => self.reply(caller, Reply::Unknown),
        }
    }

    /// Giving up arrives: the fence, then the rows.
    pub fn receive_close(&mut self, grant: Grant, caller: Option<Who>) {
        let reply = match self.rows_say(grant) {
            Some(Reply::NoEffect(_)) => Reply::Closed,
            Some(reply) => reply,
            None => match self.world.operation(grant.op).payment.as_ref().map(|payment| payment.status) {
                None | Some(PaymentStatus::Closed) => Reply::Closed,
                Some(_) => return self.open_session(Session { grant, caller, work: Work::Ask(Purpose::Close) }),
            },
        };
        self.reply(caller, reply);
    }

    /// The watch asks, or a webhook tells: the acquirer's word becomes rows.
    pub fn watch(&mut self, op: Op, word: Word) {
        self.say(|| {
            format!("the watch, or a webhook, brings the acquirer's word about operation {}: {word}", op.0 + 1)
        });
        self.apply(op, word);
    }

    fn open_session(&mut self, session: Session) {
        // A question that nobody waits for can only bring the acquirer's word, which the watch brings as well.
        let is_idle = session.caller.is_none()
            && matches!(session.work, Work::Ask(Purpose::LookUp) | Work::Write(Purpose::LookUp, _));
        if !is_idle {
            self.world.sessions.push(session);
        }
    }

    /// Whoever waits for a session does so no longer.
    pub fn leave_sessions(&mut self, who: Who) {
        for mut session in std::mem::take(&mut self.world.sessions) {
            session.caller = session.caller.filter(|caller| *caller != who);
            self.open_session(session);
        }
    }

    /// The next step of a session; `fate` is that of its call to the acquirer, `first` what the acquirer says to a new payment.
    pub fn serve(&mut self, index: usize, fate: Fate, first: Option<Word>) {
        let mut session = self.world.sessions.remove(index);
        let Session { grant, caller, work } = session.clone();
        let Some(id) = self.world.operation(grant.op).payment.as_ref().map(|payment| payment.id) else {
            return self.reply(caller, Reply::Unreachable);
        };
        match work {
            Work::Charge => {
                self.say(|| format!("orders sends the charge of payment {}{}", id.0 + 1, fate.words()));
                if fate.leaves_copy() {
                    self.world.flight.push(Message::Charge(grant.op, id));
                }
                let word = fate.arrives().then(|| self.charge(grant.op, id, first));
                session.work = match word {
                    Some(word) if fate.is_heard() => Work::Conclude(Learnt::Word(word)),
                    _ => Work::Find,
                };
                self.open_session(session);
            }
            Work::Find => {
                let learnt = self.ask_acquirer(grant, fate);
                self.open_session(Session { work: Work::Conclude(learnt), ..session });
            }
            Work::Ask(purpose) => {
                let learnt = self.ask_acquirer(grant, fate);
                self.open_session(Session { work: Work::Write(purpose, learnt), ..session });
            }
            Work::Conclude(learnt) => {
                let reply = self.conclude(grant, learnt);
                self.reply(caller, reply);
            }
            Work::Write(purpose, learnt) => {
                let reply = self.write_down(grant, purpose, learnt);
                self.reply(caller, reply);
            }
        }
    }

    /// A session is cut off: its process is killed. A charge that it was about to send may have left.
    pub fn kill(&mut self, index: usize, has_sent: bool) {
        let Session { grant, caller, .. } = self.world.sessions.remove(index);
        let sent = if has_sent { ", its charge on its way" } else { "" };
        self.say(|| format!("orders is killed while it works on {grant}{sent}"));
        let id = self.world.operation(grant.op).payment.as_ref().map(|payment| payment.id);
        if let (true, Some(id)) = (has_sent, id) {
            self.world.flight.push(Message::Charge(grant.op, id));
        }
        self.reply(caller, Reply::Unreachable);
    }

    fn ask_acquirer(&mut self, grant: Grant, fate: Fate) -> Learnt {
        let id = self.world.operation(grant.op).payment.as_ref().map(|payment| payment.id);
        let account = id.and_then(|id| self.world.account(id));
        let learnt = match (fate.is_heard(), account) {
            (false, _) => Learnt::Unreachable,
            (true, Some(account)) => Learnt::Word(account.word),
            (true, None) => Learnt::NotFound,
        };
        self.say(|| format!("orders asks the acquirer for the payment of operation {}: {learnt}", grant.op.0 + 1));
        learnt
    }

    /// Writes down what became of a charge, and answers this token with it.
    fn conclude(&mut self, grant: Grant, learnt: Learnt) -> Reply {
        let word = match learnt {
            Learnt::Word(word) => word,
            Learnt::NotFound | Learnt::Unreachable => return self.leave_unknown(grant),
        };
        self.apply(grant.op, word);
        let operation = self.world.operation(grant.op);
        match operation.kept {
            Some(kept) if kept.label == Label::Final => kept.reply(),
            _ if operation.payment.as_ref().is_some_and(|payment| payment.status == PaymentStatus::Pending) => {
                let outcome = Some(Outcome::Pending);
                if self.keep(grant, Label::Unknown, outcome) { Reply::Undecided } else { Reply::Fenced }
            }
            _ => Reply::Fenced,
        }
    }

    fn leave_unknown(&mut self, grant: Grant) -> Reply {
        self.say(|| format!("orders keeps `unknown` for {grant}"));
        if self.keep(grant, Label::Unknown, None) {
            return Reply::Unknown;
        }
        match self.world.operation(grant.op).kept {
            Some(kept) if kept.label == Label::Final => kept.reply(),
            _ => Reply::Fenced,
        }
    }

    /// Writes down what the acquirer said to a question, and answers it.
    fn write_down(&mut self, grant: Grant, purpose: Purpose, learnt: Learnt) -> Reply {
        if let Learnt::Word(word) = learnt {
            self.apply(grant.op, word);
        }
        let kept = self.world.operation(grant.op).kept;
        let is_rows_known = !self.is_mutated(Mutation::AskOnlyTheAcquirer);
        match (kept, learnt) {
            (Some(kept), _) if kept.label == Label::Final && is_rows_known => kept.reply(),
            (_, Learnt::Word(_)) => Reply::Pending,
            (_, Learnt::Unreachable) => Reply::Unreachable,
            (_, Learnt::NotFound) if purpose == Purpose::Close => self.give_up(grant),
            (_, Learnt::NotFound) => Reply::Unknown,
        }
    }
}

impl std::fmt::Display for Learnt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => word.fmt(f),
            Self::NotFound => f.write_str("not found"),
            Self::Unreachable => f.write_str("no answer"),
        }
    }
}
