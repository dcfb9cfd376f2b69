//! The story of a violation: everything that was sent, heard, kept and done around the key, order or payment concerned.

use serde::Serialize;
use serde_json::{Value, json};

use super::figures::outcome;
use crate::{
    checker::{Case, KeyId, Violation, derive},
    edge::Window,
    history::Call,
};

/// How long before and after its requests faults belong to a story.
const AROUND_MS: u64 = 10_000;
/// A body in a story is cut after so many characters; the history has all of it.
const BODY_MAX: usize = 300;

/// What led to a violation.
#[derive(Debug, Serialize)]
pub struct Story {
    /// What was violated.
    pub violation: Violation,
    /// One line a request, in the order in which they were sent.
    pub events: Vec<String>,
    /// Rows of the databases and of the acquirer.
    pub rows: Vec<Value>,
    /// Changes of fencing tokens, by what was seen.
    pub tokens: Vec<String>,
    /// Faults that were at work around that time.
    pub faults: Vec<Window>,
}

impl Story {
    pub(super) fn of(case: &Case<'_>, violation: &Violation) -> Self {
        let keys = keys(case, violation);
        let mut calls: Vec<&Call> = keys.iter().filter_map(|key| case.keyed.get(key)).flatten().copied().collect();
        if let Some(thing) = &violation.thing {
            calls.extend(case.history.calls.iter().filter(|call| call.path.contains(thing.as_str())));
        }
        calls.sort_by_key(|call| (call.sent_ms, call.id));
        calls.dedup_by_key(|call| call.id);
        let (mut from_ms, mut until_ms) = (violation.at_ms, violation.at_ms);
        for call in &calls {
            from_ms = from_ms.min(call.sent_ms);
            until_ms = until_ms.max(call.done_ms.unwrap_or(call.sent_ms));
        }
        let operations: Vec<&str> = keys.iter().filter_map(|key| case.operation(key)).collect();
        let tokens = case.history.tokens.iter().filter(|sample| operations.contains(&sample.operation.as_str()));
        let around = case
            .windows
            .iter()
            .filter(|window| window.overlaps(from_ms.saturating_sub(AROUND_MS), until_ms.saturating_add(AROUND_MS)));
        Self {
            violation: violation.clone(),
            events: calls.iter().map(|call| line(call)).collect(),
            rows: rows(case, &keys, violation),
            tokens: tokens
                .map(|it| format!("{} ms: {:?} {} token {} {}", it.ms, it.store, it.operation, it.token, it.state))
                .collect(),
            faults: around.cloned().collect(),
        }
    }
}

/// The key concerned, and those under which something was done to the order or payment concerned.
fn keys(case: &Case<'_>, violation: &Violation) -> Vec<KeyId> {
    let mut keys: Vec<KeyId> = violation.key.iter().cloned().collect();
    if let Some(thing) = &violation.thing {
        let is_about = |key: &KeyId, calls: &[&Call]| {
            let operation = case.operation(key).unwrap_or_default();
            operation == thing
                || derive::order(operation).as_ref() == Some(thing)
                || derive::payment(operation).as_ref() == Some(thing)
                || calls.iter().any(|call| call.path.contains(thing.as_str()) || call.body.contains(thing.as_str()))
        };
        keys.extend(case.keyed.iter().filter(|(key, calls)| is_about(key, calls)).map(|(key, _)| key.clone()));
    }
    keys.sort();
    keys.dedup();
    keys
}

fn line(call: &Call) -> String {
    let cut = |text: &str| -> String {
        let mut short: String = text.chars().take(BODY_MAX).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        short
    };
    let key = call.key.as_ref().map(|key| format!(" key {key:?}")).unwrap_or_default();
    let done = call.done_ms.map(|ms| ms.to_string()).unwrap_or_default();
    let heard = call.answer().map(|answer| cut(&answer.body)).unwrap_or_default();
    format!(
        "{}–{done} ms, call {} ({:?}), buyer {} of {}, gateway {}: {} {}{key} {} → {} {heard}",
        call.sent_ms,
        call.id,
        call.purpose,
        call.buyer,
        call.tenant,
        call.gateway,
        call.method,
        call.path,
        cut(&call.body),
        outcome(call)
    )
}

fn rows(case: &Case<'_>, keys: &[KeyId], violation: &Violation) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut things: Vec<String> = violation.thing.iter().cloned().collect();
    for key in keys {
        let Some(row) = case.keys.get(key) else { continue };
        rows.push(json!({"key": row}));
        rows.extend(case.operations.get(row.operation.as_str()).map(|row| json!({"operation": row})));
        things.extend(derive::order(&row.operation));
        things.extend(derive::payment(&row.operation));
    }
    things.sort();
    things.dedup();
    for id in things {
        rows.extend(case.orders.get(id.as_str()).map(|row| json!({"order": row})));
        rows.extend(case.payments.get(id.as_str()).map(|row| json!({"payment": row})));
        rows.extend(case.ledger.refunds.iter().filter(|row| row.payment == id).map(|row| json!({"refund": row})));
        rows.extend(case.ledger.acquirer.get(&id).map(|row| json!({"at the acquirer": row, "id": id})));
        rows.extend(case.ledger.ticket_types.iter().filter(|row| row.id == id).map(|row| json!({"ticket type": row})));
    }
    rows
}
