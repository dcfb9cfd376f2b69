//! Pursuing one intent until it has an answer, as a good client does: the same key and the same request, at one gateway or the
//! other, after as long as the answer says; and as real clients are: impatient, twice at once, gone in the middle.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::{sleep, timeout};

use super::{Phase, ask::Ask, buyer::Buyer, spelling};
use crate::{
    checker::{Class, Problem},
    history::{Answer, Event, How, Intent, IntentId, Kind, Purpose},
};

/// A refusal that time may change is asked again so often.
const REFUSALS_MAX: u32 = 4;
/// Seats that are gone are asked for again so often.
const SOLD_OUT_MAX: u32 = 2;
/// When nothing says how long to wait.
const PAUSE: Duration = Duration::from_millis(700);
/// Longer than any Retry-After of the shop.
const PAUSE_MAX: Duration = Duration::from_secs(6);

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) kind: Kind,
    pub(super) path: String,
    pub(super) body: String,
    pub(super) key: Option<String>,
    /// A client that never comes back after so many tries without an answer.
    pub(super) tries_max: Option<u32>,
    /// Another request that is sent under the same key.
    pub(super) other_body: Option<String>,
}

/// An intent that has its answer.
#[derive(Clone, Debug)]
pub(super) struct Bought {
    pub(super) intent: IntentId,
    pub(super) want: Want,
    pub(super) answer: Answer,
}

/// What one round of asking came to.
enum Round {
    Final(Answer),
    Refused(Answer),
    Again(Option<Answer>),
}

impl Buyer {
    /// Asks until there is an answer, or no reason to go on. Once the shop closes, nothing new is begun.
    pub(super) async fn pursue(&mut self, want: Want) -> Option<Bought> {
        if *self.phase.borrow() != Phase::Buying {
            return None;
        }
        let intent = IntentId(self.sender.recorder.number());
        self.sender.recorder.record(Event::Intent(Intent {
            id: intent,
            buyer: self.number,
            kind: want.kind,
            tenant: self.tenant_name(),
            key: want.key.clone(),
            path: want.path.clone(),
            body: want.body.clone(),
            ended: None,
        }));
        let (how, answer) = self.ask_until_answered(intent, &want).await;
        self.sender.recorder.record(Event::IntentEnded { id: intent, ms: self.sender.edge.clock.now_ms(), how });
        let answer = answer.filter(|_| how == How::Final)?;
        let bought = Bought { intent, want, answer };
        if bought.want.key.is_some() {
            self.bought.push(bought.clone());
        }
        Some(bought)
    }

    async fn ask_until_answered(&mut self, intent: IntentId, want: &Want) -> (How, Option<Answer>) {
        let (mut tries, mut refusals) = (0, 0);
        loop {
            if *self.phase.borrow() == Phase::Over {
                return (How::Unanswered, None);
            }
            let round = self.ask_once(intent, want, tries).await;
            tries += 1;
            let pause = match round {
                Round::Final(answer) => return (How::Final, Some(answer)),
                Round::Refused(answer) => {
                    refusals += 1;
                    let problem = Problem::of(&answer);
                    let max = if problem.error == "sold_out" { SOLD_OUT_MAX } else { REFUSALS_MAX };
                    if refusals >= max || !problem.is_retryable {
                        return (How::Refused, Some(answer));
                    }
                    self.pause_after(Some(&answer))
                }
                Round::Again(answer) => self.pause_after(answer.as_ref()),
            };
            if want.tries_max.is_some_and(|max| tries >= max) {
                return (How::Abandoned, None);
            }
            self.rest(pause).await;
        }
    }

    /// One round: mostly one request, sometimes two at once, sometimes one that nobody waits for.
    async fn ask_once(&mut self, intent: IntentId, want: &Want, tries: u32) -> Round {
        let purpose = if tries == 0 { Purpose::First } else { Purpose::Retry };
        let gateway = self.gateway();
        let first = self.ask(intent, want, purpose, gateway);
        let mut others = Vec::new();
        if want.key.is_some() && self.chance(0.12) {
            others.push(self.ask(intent, want, Purpose::Duplicate, 1 - gateway));
        }
        if let Some(body) = want.other_body.as_ref().filter(|_| want.key.is_some() && self.chance(0.6)) {
            let other = self.ask(intent, want, Purpose::OtherBody, 1 - gateway);
            others.push(Ask { body: body.clone(), ..other });
        }
        // Who walks away for good does so with the answer still to come.
        let is_last = want.tries_max == Some(tries + 1);
        let gone = self.sender.edge.client_gone;
        let leaves = gone > 0.0 && (self.chance(gone) || (is_last && self.chance(0.7)));
        let leave_after = leaves.then(|| Duration::from_millis(self.randomness.random_range(0..250)));
        let sender = self.sender.clone();
        let beside = futures::future::join_all(others.into_iter().map(|ask| {
            let sender = sender.clone();
            async move { (ask.purpose, sender.send(ask, None).await) }
        }));
        let (answer, beside) = tokio::join!(sender.send(first, leave_after), beside);
        let duplicates = beside.into_iter().filter(|(purpose, _)| *purpose == Purpose::Duplicate).map(|(_, it)| it);
        judge(std::iter::once(answer).chain(duplicates))
    }

    fn ask(&mut self, intent: IntentId, want: &Want, purpose: Purpose, gateway: usize) -> Ask {
        let is_respelt = want.key.is_some() && purpose != Purpose::First && self.chance(0.2);
        let body = if is_respelt { spelling::body(&mut self.randomness, &want.body) } else { want.body.clone() };
        let wait_s = (want.key.is_some() && self.chance(0.08)).then(|| self.randomness.random_range(1..=3));
        Ask {
            purpose,
            intent: Some(intent),
            buyer: self.number,
            tenant: self.tenant,
            gateway,
            method: "POST",
            path: want.path.clone(),
            key: want.key.as_ref().map(|key| (key.clone(), spelling::key(&mut self.randomness, key))),
            body,
            wait_s,
        }
    }

    /// The same request again, although its answer has long been there.
    pub(super) async fn ask_again(&mut self, bought: &Bought) {
        let gateway = self.gateway();
        let ask = self.ask(bought.intent, &bought.want, Purpose::LateRetry, gateway);
        self.sender.clone().send(ask, None).await;
    }

    fn pause_after(&mut self, answer: Option<&Answer>) -> Duration {
        if self.chance(0.15) {
            return Duration::from_millis(self.randomness.random_range(50..400));
        }
        let said = answer.and_then(|answer| answer.header("retry-after")?.parse().ok()).map(Duration::from_secs);
        said.unwrap_or(PAUSE).min(PAUSE_MAX).mul_f64(self.randomness.random_range(1.0..1.2))
    }

    /// Waits, unless all is over.
    pub(super) async fn rest(&mut self, pause: Duration) {
        self.rest_until(Phase::Over, pause).await;
    }

    /// Waits, unless the shop closes.
    pub(super) async fn rest_while_buying(&mut self, pause: Duration) {
        self.rest_until(Phase::Finishing, pause).await;
    }

    async fn rest_until(&mut self, end: Phase, pause: Duration) {
        let ended = self.phase.wait_for(|phase| *phase >= end);
        // Either is as good: the time is up, or there is nothing to wait for.
        drop(timeout(pause, ended).await);
    }

    /// A moment of doing nothing.
    pub(super) async fn think(&mut self, ms: std::ops::Range<u64>) {
        let pause = Duration::from_millis(self.randomness.random_range(ms));
        sleep(pause).await;
    }
}

/// What the answers of one round come to: the best of them counts.
fn judge(answers: impl Iterator<Item = Option<Answer>>) -> Round {
    let mut refused = None;
    let mut last = None;
    for answer in answers.flatten() {
        match Class::of(&answer) {
            Class::Final => return Round::Final(answer),
            Class::Refused | Class::Mismatch => refused = Some(answer),
            Class::Unreserved if answer.status != 503 && answer.status != 429 => refused = Some(answer),
            Class::Undecided | Class::Open | Class::Unreserved | Class::Failed => last = Some(answer),
        }
    }
    match refused {
        Some(answer) if last.is_none() => Round::Refused(answer),
        // A twin is still being executed: its answer is the one to wait for.
        _ => Round::Again(last),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn answer(status: u16, error: &str, code: &str) -> Option<Answer> {
        let body = format!(r#"{{"error":"{error}","code":"{code}"}}"#);
        Some(Answer { status, headers: BTreeMap::new(), body })
    }

    #[test]
    fn the_best_answer_of_a_round_counts() {
        let running = || answer(409, "conflict", "request_in_progress");
        assert!(matches!(judge([running(), answer(201, "", "")].into_iter()), Round::Final(_)));
        assert!(matches!(judge([answer(409, "sold_out", ""), None].into_iter()), Round::Refused(_)));
        assert!(matches!(judge([answer(409, "sold_out", ""), running()].into_iter()), Round::Again(Some(_))));
        assert!(matches!(judge([answer(503, "idempotency_unavailable", "")].into_iter()), Round::Again(Some(_))));
        assert!(matches!(judge([answer(422, "idempotency_key_reuse", "")].into_iter()), Round::Refused(_)));
        assert!(matches!(judge([None, None].into_iter()), Round::Again(None)));
    }
}
