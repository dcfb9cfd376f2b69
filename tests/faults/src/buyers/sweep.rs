//! When all is over: every key that has an answer is sent once more, and must give it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::time::sleep;

use super::{ask::Ask, pace::Pace, sender::Sender};
use crate::{
    checker::{Class, KeyId, key_of},
    edge::Edge,
    history::{Call, Event, Purpose, Recorder},
    ledger::KeyRow,
};

/// Nobody else is there to be slowed down.
const RATE: f64 = 400.0;
const SIDE_BY_SIDE: usize = 8;
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// Asks for every answer again: those that were seen, and those that are stored and nobody has seen.
pub async fn sweep(edge: &Edge, recorder: &Recorder, rows: &[KeyRow]) -> anyhow::Result<()> {
    let sender = &Sender::new(edge.clone(), recorder.clone(), Pace::new(RATE))?;
    let history = recorder.history();
    recorder.record(Event::SweepBegan { ms: edge.clock.now_ms() });
    let asks: Vec<Ask> = due(&history.calls, rows).into_values().filter_map(|call| again(edge, call)).collect();
    stream::iter(asks).for_each_concurrent(SIDE_BY_SIDE, |ask| until_answered(sender, ask)).await;
    Ok(())
}

async fn until_answered(sender: &Sender, mut ask: Ask) {
    for _ in 0..TRIES {
        let answer = sender.send(ask.clone(), None).await;
        if answer.is_some_and(|answer| answer.status != 503) {
            return;
        }
        ask.gateway = (ask.gateway + 1) % sender.edge.gateways.len();
        sleep(PAUSE).await;
    }
}

/// The request to send again for each key: one that was answered for good, else any that the key may belong to.
fn due<'c>(calls: &'c [Call], rows: &[KeyRow]) -> BTreeMap<KeyId, &'c Call> {
    let mut best = BTreeMap::<KeyId, (u8, &Call)>::new();
    for call in calls {
        let Some(key) = key_of(call) else { continue };
        let worth = match call.answer().map(Class::of) {
            Some(Class::Final) => 3,
            Some(class) if class.is_bound() => 2,
            Some(Class::Mismatch) => 0,
            _ => 1,
        };
        let known = best.entry(key).or_insert((worth, call));
        if worth > known.0 {
            *known = (worth, call);
        }
    }
    let stored: BTreeSet<KeyId> = rows.iter().filter(|row| row.state == "completed").map(KeyRow::id).collect();
    let due = best.into_iter().filter(|(key, (worth, _))| *worth == 3 || stored.contains(key));
    due.map(|(key, (_, call))| (key, call)).collect()
}

fn again(edge: &Edge, call: &Call) -> Option<Ask> {
    let tenant = edge.tenants.iter().position(|tenant| tenant.name == call.tenant)?;
    Some(Ask {
        purpose: Purpose::Sweep,
        intent: call.intent,
        buyer: call.buyer,
        tenant,
        gateway: (call.gateway + 1) % edge.gateways.len(),
        method: "POST",
        path: call.path.clone(),
        key: call.key.clone().map(|key| (key.clone(), key)),
        body: call.body.clone(),
        wait_s: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Heard};

    fn call(id: u64, key: &str, status: Option<u16>) -> Call {
        let answer = status.map(|status| Answer { status, headers: BTreeMap::new(), body: String::new() });
        Call {
            id,
            intent: None,
            buyer: 0,
            purpose: Purpose::First,
            gateway: 0,
            tenant: "a".into(),
            method: "POST".into(),
            path: "/v1/orders".into(),
            key: Some(key.into()),
            body: String::new(),
            wait_s: None,
            sent_ms: id,
            done_ms: answer.is_some().then_some(id + 1),
            heard: answer.map(Heard::Answer),
        }
    }

    #[test]
    fn what_was_answered_or_is_stored_is_due_with_the_request_that_the_key_belongs_to() {
        let calls = [
            call(1, "answered", Some(409)),
            call(2, "answered", Some(201)),
            call(3, "answered", Some(422)),
            call(4, "refused", Some(409)),
            call(5, "stored", Some(422)),
            call(6, "stored", None),
        ];
        let row = |key: &str, state: &str| KeyRow {
            scope: "rest/a".into(),
            key: key.into(),
            state: state.into(),
            ..KeyRow::default()
        };
        let due = due(&calls, &[row("stored", "completed"), row("refused", "released")]);
        let due: Vec<(&str, u64)> = due.iter().map(|(key, call)| (key.key.as_str(), call.id)).collect();
        assert_eq!(due, [("answered", 2), ("stored", 6)]);
    }
}
