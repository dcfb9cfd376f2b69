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
