//! The model: worlds, and the steps between them.

use stateright::{Model, Property};

use crate::{
    acquirer::Word,
    action::{Action, Choices},
    configuration::{Configuration, Workload},
    gateway::Task,
    mutations::Mutation,
    names::{Intent, Op, OrderStatus, Who},
    network::{Fate, Message},
    orders::Order,
    properties,
    step::Step,
    world::World,
};

/// The protocol, or the protocol without one of its rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// Who takes part and what may go wrong.
    pub configuration: Configuration,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let Configuration { workload, gateways, left, .. } = &self.configuration;
        let there_before = Order { made_by: None, status: OrderStatus::Pending, paid_by: None };
        let orders = match workload {
            Workload::Orders => Vec::new(),
            Workload::Payments => vec![there_before; usize::from(left.retentions) + 1],
        };
        vec![World {
            key: None,
            operations: Vec::new(),
            orders,
            is_seat_free: *workload == Workload::Orders,
            accounts: Vec::new(),
            tasks: vec![Task::Idle; usize::from(*gateways) + 1],
            sessions: Vec::new(),
            flight: Vec::new(),
            left: *left,
            generation: Intent(0),
            told: Vec::new(),
            broken: 0,
            shown: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        Choices::collect(self, world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut step = Step::new(self, world);
        step.take(action);
        Some(step.end().0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties(self)
    }
}

impl Protocol {
    /// A step in words.
    pub fn words(&self, world: &World, action: Action) -> Vec<String> {
        let mut step = Step::told(self, world);
        step.take(action);
        step.end().1
    }
}

impl Step<'_> {
    fn take(&mut self, action: Action) {
        match action {
            Action::Call(who, fate) => {
                self.cost(fate);
                self.count_round(who);
                self.call(who, fate);
            }
            Action::Crash(who) => {
                self.fault();
                self.crash(who);
            }
            Action::GiveUpWaiting(who) => {
                self.fault();
                self.give_up_waiting(who);
            }
            Action::Serve(index, fate, first) => {
                self.cost(fate);
                self.serve(index, fate, first);
            }
            Action::Kill(index, has_sent) => {
                self.fault();
                self.kill(index, has_sent);
            }
            Action::Deliver(index, first) => self.deliver(index, first),
            Action::LeaseOver => self.end_lease(),
            Action::RetentionOver => self.end_retention(),
            Action::Purge => {
                self.say(|| "the register purges the key".to_owned());
                self.world.key = None;
            }
            Action::Decide(id, word) => self.decide_payment(id, word),
            Action::Watch(op, word) => self.watch(op, word),
            Action::Refund(op, fate) => self.send_refund(op, fate),
            Action::SeatTaken | Action::SeatFreed => {
                self.say(|| {
                    if action == Action::SeatTaken { "somebody else takes the seat" } else { "a seat is free again" }
                        .to_owned()
                });
                self.world.left.seats -= 1;
                self.world.is_seat_free = action == Action::SeatFreed;
            }
            Action::HoldLapses(order, is_taken) => {
                let seat = if is_taken { "somebody else takes its seat" } else { "its seat is free" };
                self.say(|| format!("the hold of order {} lapses, {seat}", order + 1));
                self.world.left.lapses -= 1;
                self.world.orders[usize::from(order)].status = OrderStatus::Expired;
                self.world.is_seat_free = !is_taken;
            }
            Action::PaidElsewhere(order) => {
                self.say(|| format!("order {} is paid outside the acquirer", order + 1));
                self.world.left.paid_elsewhere -= 1;
                self.world.orders[usize::from(order)].status = OrderStatus::Paid;
            }
        }
    }

    fn cost(&mut self, fate: Fate) {
        if fate.is_fault() {
            self.fault();
        }
    }

    /// A round of the reconciler for a payment that the acquirer has not decided is one of few.
    fn count_round(&mut self, who: Who) {
        let is_idle_reconciler =
            usize::from(who.0) + 1 == self.world.tasks.len() && self.world.tasks[usize::from(who.0)] == Task::Idle;
        let is_undecided = self.world.key.as_ref().is_some_and(|key| self.world.is_undecided(key.op));
        if is_idle_reconciler && is_undecided {
            self.world.left.idle_rounds -= 1;
        }
    }

    /// A late call arrives. Nobody hears its answer.
    fn deliver(&mut self, index: usize, first: Option<Word>) {
        let message = self.world.flight.remove(index);
        match message {
            Message::Register(ask) => {
                self.say(|| format!("a late call arrives at the register: {ask}"));
                self.register_late(ask);
            }
            Message::Place(grant) => {
                self.say(|| format!("a late call arrives at orders: place the order under {grant}"));
                self.place(grant);
            }
            Message::Pay(grant) => {
                self.say(|| format!("a late call arrives at orders: pay the order under {grant}"));
                self.receive_pay(grant, None);
            }
            Message::LookUp(grant) => {
                self.say(|| format!("a late call arrives at orders: what happened to {grant}?"));
                self.receive_look_up(grant, None);
            }
            Message::Close(grant) => {
                self.say(|| format!("a late call arrives at orders: give {grant} up"));
                self.receive_close(grant, None);
            }
            Message::Charge(op, id) => self.charge_late(op, id, first),
            Message::Refund(id, number) => self.give_back(id, number),
        }
    }

    fn end_lease(&mut self) {
        let Some(key) = &self.world.key else { return };
        let grant = key.grant();
        let sleeper = self.world.tasks.iter().position(|task| task.grant() == Some(grant));
        match sleeper {
            Some(number) => {
                self.fault();
                let name = self.name(Who(number as u8));
                self.say(|| format!("the lease of {grant} is over: {name} sleeps"));
            }
            None => {
                let is_tried = self
                    .world
                    .tasks
                    .iter()
                    .filter_map(Task::attempt)
                    .any(|attempt| self.world.key.as_ref().is_some_and(|key| key.attempt == attempt));
                if is_tried {
                    self.fault();
                }
                self.say(|| format!("the lease of {grant} is over"));
            }
        }
        if let Some(key) = &mut self.world.key {
            key.is_past_deadline = true;
        }
    }

    fn end_retention(&mut self) {
        self.say(|| "the retention of the key is over".to_owned());
        self.world.left.retentions -= 1;
        self.world.generation = Intent(self.world.generation.0 + 1);
        if let Some(key) = &mut self.world.key {
            key.is_past_deadline = true;
        }
    }

    fn send_refund(&mut self, op: Op, fate: Fate) {
        self.cost(fate);
        let counts = self.is_mutated(Mutation::RefundIdPerTry);
        let Some(payment) = &mut self.world.operation_mut(op).payment else { return };
        let (id, number) = (payment.id, payment.tries);
        if counts {
            payment.tries += 1;
        }
        self.say(|| format!("orders sends the refund of payment {}{}", id.0 + 1, fate.words()));
        if fate.leaves_copy() {
            self.world.flight.push(Message::Refund(id, number));
        }
        if fate.arrives() {
            self.give_back(id, number);
        }
        if fate.is_heard() {
            self.acknowledge_refund(op);
        }
    }
}
