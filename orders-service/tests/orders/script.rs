//! An acquirer that does what the test says, at the moment the test says: for interleavings that a real one shows once a year.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use orders_service::{
    acquirer::{Acquirer, Charge, RefundReply, Reply, Return},
    operation_id::PaymentId,
    payment::Verdict,
};
use tokio::sync::Semaphore;

/// What the scripted acquirer knows.
pub struct Script {
    state: Mutex<State>,
    gate: Semaphore,
}

#[derive(Default)]
struct State {
    payments: BTreeMap<String, Held>,
    late: BTreeMap<String, Charge>,
    charge_calls: BTreeMap<String, u32>,
    queries: BTreeMap<String, u32>,
    refunds: BTreeMap<String, BTreeSet<String>>,
    refund_calls: u32,
    is_down: bool,
    refunds_are_down: bool,
    longest_patience: Duration,
}

struct Held {
    charge: Charge,
    verdict: Verdict,
    amount: i64,
}

impl Script {
    pub fn new() -> Self {
        Self { state: Mutex::default(), gate: Semaphore::new(0) }
    }

    /// Lets one `pm_gated` charge through.
    pub fn open_gate(&self) {
        self.gate.add_permits(1);
    }

    /// Nothing is answered while it is down.
    pub fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    pub fn set_refunds_down(&self, is_down: bool) {
        self.state().refunds_are_down = is_down;
    }

    /// Decides a pending payment; no webhook is sent.
    pub fn decide(&self, payment: &str, verdict: Verdict) {
        self.state().payments.get_mut(payment).expect("a pending payment").verdict = verdict;
    }

    /// The charge of a `pm_late` payment lands.
    pub fn land(&self, payment: &str) {
        let mut state = self.state();
        let charge = state.late.remove(payment).expect("a late charge");
        let amount = charge.amount.amount;
        state.payments.insert(payment.to_owned(), Held { charge, verdict: Verdict::Approved, amount });
    }

    /// The charge of a `pm_late` payment lands now if there is one on its way; says whether there was.
    pub fn land_if_late(&self, payment: &str) -> bool {
        let is_late = self.state().late.contains_key(payment);
        if is_late {
            self.land(payment);
        }
        is_late
    }

    /// What the acquirer has under a payment id.
    pub fn status(&self, payment: &str) -> Option<Verdict> {
        self.state().payments.get(payment).map(|held| held.verdict)
    }

    /// How often a charge was sent.
    pub fn charge_calls(&self, payment: &str) -> u32 {
        self.state().charge_calls.get(payment).copied().unwrap_or_default()
    }

    pub fn queries(&self, payment: &str) -> u32 {
        self.state().queries.get(payment).copied().unwrap_or_default()
    }

    /// The refund ids that were acknowledged for a payment.
    pub fn refunds(&self, payment: &str) -> usize {
        self.state().refunds.get(payment).map_or(0, BTreeSet::len)
    }

    pub fn refund_calls(&self) -> u32 {
        self.state().refund_calls
    }

    /// How often it was called in any way.
    pub fn all_calls(&self) -> u32 {
        let state = self.state();
        state.charge_calls.values().sum::<u32>() + state.queries.values().sum::<u32>() + state.refund_calls
    }

    /// The longest that anybody was ready to wait for a charge.
    pub fn longest_patience(&self) -> Duration {
        self.state().longest_patience
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

#[async_trait::async_trait]
impl Acquirer for Script {
    async fn charge(&self, charge: &Charge, patience: Duration) -> Reply {
        let id = charge.payment.to_string();
        {
            let mut state = self.state();
            *state.charge_calls.entry(id.clone()).or_default() += 1;
            state.longest_patience = state.longest_patience.max(patience);
        }
        if charge.method == "pm_gated" {
            match tokio::time::timeout(patience, self.gate.acquire()).await {
                Ok(permit) => permit.unwrap().forget(),
                Err(_) => return unreachable(),
            }
        }
        let mut state = self.state();
        let is_on_its_way = state.late.contains_key(&id);
        if is_on_its_way && charge.method == "pm_late_then_refused" {
            return Reply::Refused("it answered 400".to_owned());
        }
        if state.is_down || is_on_its_way {
            return unreachable();
        }
        if let Some(held) = state.payments.get(&id) {
            return if held.charge == *charge { held.known() } else { Reply::Conflict };
        }
        let (verdict, extra) = match charge.method.as_str() {
            "pm_approved" | "pm_gated" | "pm_charge_then_drop" => (Verdict::Approved, 0),
            "pm_declined" => (Verdict::Declined, 0),
            "pm_pending" | "pm_pending_then_drop" => (Verdict::Pending, 0),
            "pm_other_amount" => (Verdict::Approved, 1),
            "pm_refused" => return Reply::Refused("no such method".to_owned()),
            "pm_late" | "pm_late_then_refused" => {
                state.late.insert(id, charge.clone());
                return unreachable();
            }
            _ => return unreachable(),
        };
        let held = Held { charge: charge.clone(), verdict, amount: charge.amount.amount + extra };
        let known = held.known();
        state.payments.insert(id, held);
        if charge.method.ends_with("_drop") { unreachable() } else { known }
    }

    async fn find(&self, payment: PaymentId, _patience: Duration) -> Reply {
        let id = payment.to_string();
        let mut state = self.state();
        *state.queries.entry(id.clone()).or_default() += 1;
        if state.is_down {
            return unreachable();
        }
        state.payments.get(&id).map_or(Reply::NotFound, Held::known)
    }

    async fn refund(&self, back: &Return, _patience: Duration) -> RefundReply {
        let mut state = self.state();
        state.refund_calls += 1;
        if state.is_down || state.refunds_are_down {
            return RefundReply::Unreachable("it is down".to_owned());
        }
        state.refunds.entry(back.payment.to_string()).or_default().insert(back.refund.to_string());
        RefundReply::Acknowledged
    }
}

impl Held {
    fn known(&self) -> Reply {
        Reply::Known {
            verdict: self.verdict,
            amount: self.amount,
            currency: self.charge.amount.currency.as_str().to_owned(),
        }
    }
}

fn unreachable() -> Reply {
    Reply::Unreachable("the script says so".to_owned())
}
