//! The acquirer's back office: pending payments are approved or declined after a while, and some never are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, time::sleep};

use super::Phase;
use crate::{
    edge::{DatabaseOf, Edge},
    history::{Control, Deed, Event, Recorder},
    ledger::Database,
};

const LOOK_EVERY: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(5);

/// Which payments wait for the clerk is read from the rows: their ids are known to nobody else when the answer got lost.
const WAITING: &[&str] = &["\
SELECT id
  FROM payments
 WHERE method IN ('pm_pending', 'pm_pending_charge_then_hang')
   AND status IN ('started', 'pending', 'closed')"];

/// Decides pending payments.
pub(super) struct Clerk {
    edge: Edge,
    recorder: Recorder,
    phase: watch::Receiver<Phase>,
    database: Database,
    client: reqwest::Client,
    /// When each was seen first.
    seen: BTreeMap<String, u64>,
    decided: BTreeSet<String>,
}

/// What becomes of a payment; follows from its id.
struct Fate {
    after_ms: u64,
    deed: Deed,
    is_repeated: bool,
}

impl Clerk {
    pub(super) fn new(edge: Edge, recorder: Recorder, phase: watch::Receiver<Phase>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let database = Database::new(edge.store.clone());
        Ok(Self { edge, recorder, phase, database, client, seen: BTreeMap::new(), decided: BTreeSet::new() })
    }

    /// Works until the last buyer has gone home.
    pub(super) async fn work(mut self) {
        while *self.phase.borrow() != Phase::Over {
            sleep(LOOK_EVERY).await;
            // While the store cannot be read, nothing is decided.
            let Ok(mut answers) = self.database.read(DatabaseOf::Orders, WAITING).await else { continue };
            let now = self.edge.clock.now_ms();
            for mut row in answers.pop().unwrap_or_default() {
                let Ok(id) = row.text() else { continue };
                let since = *self.seen.entry(id.clone()).or_insert(now);
                let Some(fate) = Fate::of(&id) else { continue };
                if now >= since + fate.after_ms && !self.decided.contains(&id) && self.decide(&id, &fate).await {
                    self.decided.insert(id);
                }
            }
        }
    }

    async fn decide(&self, id: &str, fate: &Fate) -> bool {
        let status = if fate.deed == Deed::Approve { "approved" } else { "declined" };
        let url = format!("http://{}/sandbox/payments/{id}/settle", self.edge.sandbox);
        let answer = self.client.post(url).json(&json!({"status": status})).send().await;
        let Ok(answer) = answer else { return false };
        let code = answer.status().as_u16();
        self.note(fate.deed, id, code);
        let event = answer.json::<Value>().await.ok().and_then(|it| it["eventId"].as_str().map(str::to_owned));
        if let (true, Some(event)) = (fate.is_repeated, event) {
            let url = format!("http://{}/sandbox/webhooks/{event}/redeliver", self.edge.sandbox);
            if let Ok(answer) = self.client.post(url).send().await {
                self.note(Deed::Redeliver, &event, answer.status().as_u16());
            }
        }
        // Not there yet: the charge has not arrived.
        code != 404
    }

    fn note(&self, deed: Deed, target: &str, status: u16) {
        let ms = self.edge.clock.now_ms();
        self.recorder.record(Event::Control(Control { ms, deed, target: target.to_owned(), status: Some(status) }));
    }
}

impl Fate {
    /// None for a payment that is never decided.
    fn of(payment: &str) -> Option<Self> {
        let digest = Sha256::digest(payment.as_bytes());
        if digest[0] % 20 == 0 {
            return None;
        }
        // Mostly soon; sometimes when the hold of the order is long over.
        let after_ms = match digest[4] % 8 {
            0 => 20_000 + u64::from(digest[1]) * 200,
            _ => 300 + u64::from(digest[1]) * 30,
        };
        Some(Self {
            after_ms,
            deed: if digest[2] % 4 == 0 { Deed::Decline } else { Deed::Approve },
            is_repeated: digest[3] % 3 == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_payments_are_decided_and_some_never_are() {
        let fates: Vec<Option<Fate>> = (0..2_000).map(|number| Fate::of(&format!("payment {number}"))).collect();
        let never = fates.iter().filter(|fate| fate.is_none()).count();
        let declined = fates.iter().flatten().filter(|fate| fate.deed == Deed::Decline).count();
        assert!((40..200).contains(&never) && (300..700).contains(&declined), "{never} {declined}");
        let late = fates.iter().flatten().filter(|fate| fate.after_ms > 60_000).count();
        assert!((20..120).contains(&late), "{late}");
    }
}
