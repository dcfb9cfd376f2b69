//! The numbers of a run: how much was done, by kind and outcome, how long it took, and how much of it could be judged.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    checker::{Case, Problem, Route},
    history::{Answer, Call, Heard, How, Purpose, Why},
};

/// Numbers of a run.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// How long it took, settling and sweeping included.
    pub duration_ms: u64,
    /// Requests.
    pub operations: usize,
    /// Requests by what they asked for and what came of it.
    pub outcomes: BTreeMap<String, BTreeMap<String, usize>>,
    /// Intents by how they ended.
    pub intents: BTreeMap<String, usize>,
    /// Faults by kind.
    pub faults: BTreeMap<String, usize>,
    /// Of how many requests no fault can excuse the outcome.
    pub unexcused: usize,
    /// How long answers took.
    pub latency_without_faults: Percentiles,
    /// The same, with a fault at work.
    pub latency_with_faults: Percentiles,
    /// Looks at the stock.
    pub stock_samples: usize,
    /// Changes of fencing tokens that were seen.
    pub token_samples: usize,
    /// Keys that were asked for again when all was over.
    pub swept: usize,
    /// Answers that came from an earlier execution.
    pub replays: usize,
    /// Keys in the idempotency database, by state.
    pub keys: BTreeMap<String, usize>,
    /// Keys that were granted more than once.
    pub keys_granted_again: usize,
    /// Orders, by status.
    pub orders: BTreeMap<String, usize>,
    /// Payments, by status.
    pub payments: BTreeMap<String, usize>,
    /// Charges at the acquirer.
    pub charges: i64,
    /// What they took, in minor units.
    pub captured: i64,
    /// What went back.
    pub refunded: i64,
}

/// How long answers took, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many.
    pub count: usize,
    /// Half of them took no longer.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// All but one of a hundred.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

// === impl Figures ===

impl Figures {
    pub(super) fn of(case: &Case<'_>) -> Self {
        let (history, ledger) = (case.history, case.ledger);
        let mut figures = Self {
            duration_ms: ledger.read_ms,
            operations: history.calls.len(),
            stock_samples: history.stock.len(),
            token_samples: history.tokens.len(),
            keys_granted_again: ledger.keys.iter().filter(|row| row.attempts > 1).count(),
            charges: ledger.totals.charges,
            captured: ledger.totals.captured,
            refunded: ledger.totals.refunded,
            ..Self::default()
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for call in &history.calls {
            let outcomes = figures.outcomes.entry(asked(call).to_owned()).or_default();
            *outcomes.entry(outcome(call)).or_default() += 1;
            figures.swept += usize::from(call.purpose == Purpose::Sweep);
            figures.replays += usize::from(call.answer().is_some_and(Answer::is_replayed));
            let is_excused = case.is_excused(call.gateway, call.sent_ms, call.done_ms.unwrap_or(u64::MAX));
            figures.unexcused += usize::from(!is_excused);
            if let (Some((done_ms, _)), None) = (call.answered(), call.wait_s) {
                (if is_excused { &mut with } else { &mut without }).push(done_ms - call.sent_ms);
            }
        }
        figures.latency_with_faults = Percentiles::of(with);
        figures.latency_without_faults = Percentiles::of(without);
        for intent in history.intents.values() {
            let how = match intent.ended {
                Some((_, How::Final)) => "answered",
                Some((_, How::Refused)) => "refused",
                Some((_, How::Abandoned)) => "abandoned by the buyer",
                Some((_, How::Unanswered)) => "never answered",
                None => "without an end",
            };
            *figures.intents.entry(how.to_owned()).or_default() += 1;
        }
        count(&mut figures.faults, case.windows.iter().map(|window| &window.fault));
        count(&mut figures.keys, ledger.keys.iter().map(|row| &row.state));
        count(&mut figures.orders, ledger.orders.iter().map(|row| &row.status));
        count(&mut figures.payments, ledger.payments.iter().map(|row| &row.status));
        figures
    }
}

fn count<'s>(counts: &mut BTreeMap<String, usize>, names: impl Iterator<Item = &'s String>) {
    for name in names {
        *counts.entry(name.clone()).or_default() += 1;
    }
}

fn asked(call: &Call) -> &'static str {
    match Route::of(call) {
        Route::Place => "place order",
        Route::Pay => "pay",
        Route::Confirm(_) => "confirm",
        Route::Cancel(_) => "cancel",
        Route::Link(_) => "payment link",
        Route::CheckIn(_) => "check in",
        Route::Order(_) => "read order",
        Route::Payment(_) => "read payment",
        Route::TicketType(_) => "read ticket type",
        Route::Key(_) => "read key",
        Route::Other => "other",
    }
}

/// One or two words for what came back.
pub(super) fn outcome(call: &Call) -> String {
    match &call.heard {
        Some(Heard::Answer(answer)) => {
            let replayed = if answer.is_replayed() { " replayed" } else { "" };
            let problem = if answer.status >= 400 { format!(" {}", Problem::of(answer).name()) } else { String::new() };
            format!("{}{problem}{replayed}", answer.status)
        }
        Some(Heard::Nothing(Why::Left)) => "client gone".to_owned(),
        Some(Heard::Nothing(Why::TimedOut)) => "no answer in time".to_owned(),
        Some(Heard::Nothing(Why::Broken(_))) => "connection lost".to_owned(),
        None => "no end".to_owned(),
    }
}

// === impl Percentiles ===

impl Percentiles {
    fn of(mut took: Vec<u64>) -> Self {
        took.sort_unstable();
        let Some(max) = took.last().copied() else { return Self::default() };
        let at = |percent: usize| took[(took.len() - 1) * percent / 100];
        Self { count: took.len(), p50: at(50), p90: at(90), p99: at(99), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let it = Percentiles::of((1..=1000).rev().collect());
        assert_eq!((it.count, it.p50, it.p90, it.p99, it.max), (1000, 500, 900, 990, 1000));
        assert_eq!(Percentiles::of(vec![]).max, 0);
    }
}
