//! What can happen next: every step of every process, whatever is on its way, and what happens by itself.

use crate::{
    acquirer::Word,
    configuration::{Left, Workload},
    gateway::Task,
    model::Protocol,
    mutations::Mutation,
    names::{Op, OrderStatus, PaymentId, Who},
    network::{Fate, Message},
    payment::{PaymentStatus, may_be_paid},
    register::KeyState,
    session::{Purpose, Work},
    world::World,
};

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A holder makes its next call.
    Call(Who, Fate),
    /// A holder is killed.
    Crash(Who),
    /// A holder waits no longer for the orders service.
    GiveUpWaiting(Who),
    /// A session of the orders service takes its next step.
    Serve(usize, Fate, Option<Word>),
    /// A session is cut off; true when the charge it was about to send is on its way.
    Kill(usize, bool),
    /// A late call arrives.
    Deliver(usize, Option<Word>),
    /// The lease is over.
    LeaseOver,
    /// The retention is over.
    RetentionOver,
    /// The register forgets the key.
    Purge,
    /// The acquirer decides what was pending.
    Decide(PaymentId, Word),
    /// The watch asks, or a webhook is sent.
    Watch(Op, Word),
    /// The outbox sends a refund.
    Refund(Op, Fate),
    /// Somebody else takes the seat.
    SeatTaken,
    /// Somebody else gives the seat back.
    SeatFreed,
    /// The hold of an order lapses; true when somebody else takes the seat at once.
    HoldLapses(u8, bool),
    /// An order is paid outside the acquirer.
    PaidElsewhere(u8),
}

const GET_KEY: [Fate; 4] = [Fate::Arrives, Fate::ArrivesTwice, Fate::AnswerLost, Fate::LateAndDead];
const ASK: [Fate; 3] = [Fate::Arrives, Fate::Late, Fate::Lost];
const EXECUTE: [Fate; 7] =
    [Fate::Arrives, Fate::ArrivesTwice, Fate::AnswerLost, Fate::Late, Fate::Lost, Fate::NeverLeft, Fate::LateAndDead];
const FINISH: [Fate; 6] =
    [Fate::Arrives, Fate::ArrivesTwice, Fate::AnswerLost, Fate::Late, Fate::Lost, Fate::LateAndDead];
const CHARGE: [Fate; 5] = [Fate::Arrives, Fate::ArrivesTwice, Fate::AnswerLost, Fate::Late, Fate::Lost];
const ASK_ACQUIRER: [Fate; 2] = [Fate::Arrives, Fate::Lost];
const REFUND: [Fate; 3] = [Fate::Arrives, Fate::AnswerLost, Fate::Late];
/// Nothing of it goes over the network.
const ALONE: [Fate; 1] = [Fate::Arrives];

/// Collects what can happen next.
pub struct Choices<'w> {
    protocol: &'w Protocol,
    world: &'w World,
    actions: &'w mut Vec<Action>,
}

impl<'w> Choices<'w> {
    /// Collects into `actions`.
    pub fn collect(protocol: &'w Protocol, world: &'w World, actions: &'w mut Vec<Action>) {
        let mut choices = Self { protocol, world, actions };
        choices.holders();
        choices.sessions();
        choices.messages();
        choices.key();
        choices.money();
        choices.others();
    }

    fn left(&self) -> &Left {
        &self.world.left
    }

    fn has_fault(&self) -> bool {
        self.left().faults > 0
    }

    /// The fates of a call to the register.
    fn each_fate_at_register(&mut self, fates: &[Fate], action: impl Fn(Fate) -> Action) {
        if self.protocol.configuration.is_register_faulty {
            self.each_fate(fates, action);
        } else {
            self.each_fate(&ALONE, action);
        }
    }

    fn each_fate(&mut self, fates: &[Fate], action: impl Fn(Fate) -> Action) {
        let may_fail = self.has_fault();
        self.actions.extend(fates.iter().filter(|fate| may_fail || !fate.is_fault()).map(|fate| action(*fate)));
    }

    // === processes ===

    fn holders(&mut self) {
        let reconciler = self.world.tasks.len() - 1;
        // Gateways are alike: a request goes to the first that is idle.
        let idle = self.world.tasks[..reconciler].iter().position(|task| *task == Task::Idle);
        for (number, task) in self.world.tasks.iter().enumerate() {
            let who = Who(number as u8);
            match task {
                Task::Idle if number == reconciler => {
                    if self.may_begin_round() {
                        self.each_fate_at_register(&GET_KEY, |fate| Action::Call(who, fate));
                    }
                }
                Task::Idle => {
                    if idle == Some(number) && self.left().requests > 0 {
                        self.requests(who);
                    }
                }
                Task::Reserving(_) | Task::Reclaiming(..) => {
                    self.each_fate_at_register(&GET_KEY, |fate| Action::Call(who, fate))
                }
                Task::Asking(..) => self.each_fate(&ASK, |fate| Action::Call(who, fate)),
                Task::Executing(..) => {
                    // A payment is several steps; there the caller gives up waiting instead.
                    let is_payment = self.protocol.configuration.workload == Workload::Payments;
                    let fates = EXECUTE.iter().filter(|fate| !is_payment || **fate != Fate::AnswerLost);
                    let fates: Vec<Fate> = fates.copied().collect();
                    self.each_fate(&fates, |fate| Action::Call(who, fate));
                }
                Task::Finishing(..) => self.each_fate_at_register(&FINISH, |fate| Action::Call(who, fate)),
                Task::Saying(..) => self.each_fate(&ALONE, |fate| Action::Call(who, fate)),
                Task::AwaitingFound(..) | Task::AwaitingAnswer(..) => {
                    if self.has_fault() {
                        self.actions.push(Action::GiveUpWaiting(who));
                    }
                }
            }
            if self.has_fault() && *task != Task::Idle {
                self.actions.push(Action::Crash(who));
            }
        }
    }

    fn requests(&mut self, who: Who) {
        let is_held =
            self.world.key.as_ref().is_some_and(|key| key.state == KeyState::InProgress && !key.is_past_deadline);
        if !is_held {
            self.each_fate_at_register(&GET_KEY, |fate| Action::Call(who, fate));
        } else if self.has_fault() && self.protocol.configuration.is_register_faulty {
            // 409 changes nothing and teaches nothing, so such a request is not sent; but one may be on its way meanwhile.
            self.actions.push(Action::Call(who, Fate::LateAndDead));
        }
    }

    /// The reconciler takes any stale key. One whose payment the acquirer has not decided it takes again and again; here, few times.
    fn may_begin_round(&self) -> bool {
        let Some(key) = self.world.key.as_ref().filter(|key| key.is_stale()) else { return false };
        let exists = self.protocol.mutation != Some(Mutation::NoReconciler);
        exists && (!self.world.is_undecided(key.op) || self.left().idle_rounds > 0)
    }

    fn sessions(&mut self) {
        for (index, session) in self.world.sessions.iter().enumerate() {
            if index > 0 && self.world.sessions[index - 1] == *session {
                continue;
            }
            let fates: &[Fate] = match session.work {
                Work::Charge => &CHARGE,
                Work::Find | Work::Ask(_) => &ASK_ACQUIRER,
                Work::Conclude(_) | Work::Write(..) => &ALONE,
            };
            let payment = self.world.operation(session.grant.op).payment.as_ref().map(|payment| payment.id);
            for fate in fates {
                if fate.is_fault() && !self.has_fault() {
                    continue;
                }
                let is_charge = session.work == Work::Charge && fate.arrives();
                let words = self.first_words(payment.filter(|_| is_charge));
                self.actions.extend(words.iter().map(|word| Action::Serve(index, *fate, *word)));
            }
            // A look-up that is cut off is one that its holder waits for no longer.
            let is_look_up = matches!(session.work, Work::Ask(Purpose::LookUp) | Work::Write(Purpose::LookUp, _));
            if self.has_fault() && !is_look_up {
                self.actions.push(Action::Kill(index, false));
                if session.work == Work::Charge {
                    self.actions.push(Action::Kill(index, true));
                }
            }
        }
    }

    fn messages(&mut self) {
        for (index, message) in self.world.flight.iter().enumerate() {
            if index > 0 && self.world.flight[index - 1] == *message {
                continue;
            }
            let charged = match message {
                Message::Charge(_, id) => Some(*id),
                _ => None,
            };
            let words = self.first_words(charged);
            self.actions.extend(words.iter().map(|word| Action::Deliver(index, *word)));
        }
    }

    /// What the acquirer may say to a charge that it has not seen before.
    fn first_words(&self, charged: Option<PaymentId>) -> Vec<Option<Word>> {
        match charged {
            Some(id) if self.world.account(id).is_none() => {
                self.protocol.configuration.words.iter().copied().map(Some).collect()
            }
            _ => vec![None],
        }
    }

    // === what happens by itself ===

    fn key(&mut self) {
        let Some(key) = &self.world.key else { return };
        match key.state {
            KeyState::InProgress if !key.is_past_deadline => {
                // That a dead holder's lease ends is bound to happen; that a live one sleeps so long is a fault.
                if self.has_fault() || !self.world.has_live_holder() {
                    self.actions.push(Action::LeaseOver);
                }
            }
            KeyState::Completed(_) | KeyState::Released if !key.is_past_deadline => {
                if self.left().retentions > 0 {
                    self.actions.push(Action::RetentionOver);
                }
            }
            KeyState::Completed(_) | KeyState::Released => self.actions.push(Action::Purge),
            KeyState::InProgress | KeyState::InDoubt => {}
        }
    }

    fn money(&mut self) {
        for account in self.world.accounts.iter().filter(|account| account.word == Word::Pending) {
            self.actions.push(Action::Decide(account.id, Word::Approved));
            self.actions.push(Action::Decide(account.id, Word::Declined));
        }
        for (operation, number) in self.world.operations.iter().zip(0..) {
            let Some(payment) = &operation.payment else { continue };
            let op = Op(number);
            if payment.status == PaymentStatus::RefundPending {
                self.each_fate(&REFUND, |fate| Action::Refund(op, fate));
            }
            let Some(account) = self.world.account(payment.id) else { continue };
            let is_news = match payment.status {
                PaymentStatus::Started => true,
                PaymentStatus::Pending => account.word != Word::Pending,
                PaymentStatus::Closed => {
                    account.word != Word::Pending && self.protocol.mutation != Some(Mutation::ForgetClosed)
                }
                _ => false,
            };
            if is_news {
                self.actions.push(Action::Watch(op, account.word));
            }
        }
    }

    fn others(&mut self) {
        if self.left().seats > 0 {
            let is_ours = self.world.orders.iter().any(|order| order.status != OrderStatus::Expired);
            if self.world.is_seat_free {
                self.actions.push(Action::SeatTaken);
            } else if !is_ours && self.protocol.configuration.workload == Workload::Orders {
                self.actions.push(Action::SeatFreed);
            }
        }
        for (order, number) in self.world.orders.iter().zip(0..) {
            if self.left().lapses > 0 && order.status == OrderStatus::Pending {
                self.actions.push(Action::HoldLapses(number, false));
                if self.protocol.configuration.workload == Workload::Payments {
                    self.actions.push(Action::HoldLapses(number, true));
                }
            }
            if self.left().paid_elsewhere > 0 && may_be_paid(order.status, self.world.has_open_payment(number)) {
                self.actions.push(Action::PaidElsewhere(number));
            }
        }
    }
}

impl World {
    /// The acquirer has the payment of this operation and has not decided it.
    pub fn is_undecided(&self, op: Op) -> bool {
        let payment = self.operation(op).payment.as_ref();
        payment.and_then(|payment| self.account(payment.id)).is_some_and(|account| account.word == Word::Pending)
    }

    /// An order has an open payment.
    pub fn has_open_payment(&self, order: u8) -> bool {
        self.operations.iter().any(|operation| {
            operation.intent.0 == order && operation.payment.as_ref().is_some_and(|payment| payment.status.is_open())
        })
    }

    /// Whoever holds the key is still there, if it does not know it yet either.
    fn has_live_holder(&self) -> bool {
        let Some(key) = &self.key else { return false };
        self.tasks.iter().any(|task| {
            let is_trying = task.attempt().is_some_and(|attempt| attempt == key.attempt);
            is_trying || task.grant() == Some(key.grant())
        })
    }
}
