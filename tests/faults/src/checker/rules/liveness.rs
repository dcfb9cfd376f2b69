//! Everything settles: within a lease and ninety seconds of the last fault no key is open, every buyer that went on asking has its
//! answer, and what is to go back has gone back; but for payments that the acquirer itself leaves undecided.

use serde_json::Value;

use crate::{
    checker::{Case, KeyId, Violation, derive},
    history::{How, Intent, Kind},
};

pub(super) const NAME: &str = "liveness";

/// How long after the last fault, beyond one lease, something may be open.
const PATIENCE_MS: u64 = 90_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = keys(case);
    found.extend(intents(case));
    found.extend(payments(case));
    found
}

fn keys(case: &Case<'_>) -> Vec<Violation> {
    let open = case.keys.iter().filter(|(key, row)| row.is_open() && !is_left_undecided(case, key));
    open.map(|(key, row)| Violation::new(NAME, format!("it is still {}, {}", row.state, waited(case))).of(key))
        .map(|violation| violation.at(case.ledger.read_ms))
        .collect()
}

/// How long the campaign had waited when the ledger was read.
fn waited(case: &Case<'_>) -> String {
    let course = &case.history.course;
    let stopped = course.faults_stopped_ms.unwrap_or_default();
    let waited = case.ledger.read_ms.saturating_sub(stopped);
    let allowed = course.lease_ms + PATIENCE_MS;
    let verdict =
        if waited < allowed { "which is too early to judge: it must be waited for" } else { "which is too late" };
    format!("{waited} ms after the last fault, {verdict}")
}

fn intents(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for intent in case.history.intents.values() {
        let (what, ms) = match intent.ended {
            None => ("the record of this intent has no end".to_owned(), intent_ms(case, intent)),
            Some((ms, How::Unanswered)) if !is_blocked(case, intent) => {
                ("the buyer went on asking and never got an answer".to_owned(), ms)
            }
            Some((_, How::Final | How::Refused | How::Abandoned | How::Unanswered)) => continue,
        };
        let mut violation = Violation::new(NAME, what).about(&intent.path).at(ms);
        violation.key = key_of(intent);
        found.push(violation);
    }
    found
}

/// The answer waits for a payment, its own or another one of its order, that the acquirer has not decided.
fn is_blocked(case: &Case<'_>, intent: &Intent) -> bool {
    if key_of(intent).is_some_and(|key| is_left_undecided(case, &key)) {
        return true;
    }
    let body: Value = serde_json::from_str(&intent.body).unwrap_or_default();
    let order = match intent.kind {
        Kind::Pay => body["orderId"].as_str(),
        Kind::Confirm | Kind::Cancel => intent.path.split('/').nth(3),
        Kind::Place | Kind::CheckIn => None,
    };
    order.is_some_and(|order| {
        case.ledger.payments.iter().any(|payment| payment.order == order && is_pending(case, &payment.id))
    })
}

fn key_of(intent: &Intent) -> Option<KeyId> {
    Some(KeyId { tenant: intent.tenant.clone(), key: intent.key.clone()? })
}

fn intent_ms(case: &Case<'_>, intent: &Intent) -> u64 {
    case.history.calls.iter().filter(|call| call.intent == Some(intent.id)).map(|call| call.sent_ms).max().unwrap_or(0)
}

fn is_left_undecided(case: &Case<'_>, key: &KeyId) -> bool {
    case.operation(key).and_then(derive::payment).is_some_and(|id| is_pending(case, &id))
}

fn is_pending(case: &Case<'_>, payment: &str) -> bool {
    case.ledger.acquirer.get(payment).is_some_and(|it| it.status == "pending")
}

/// Payments that the acquirer has decided are decided here, and refunds are acknowledged.
fn payments(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for payment in case.ledger.payments.iter().filter(|it| matches!(it.status.as_str(), "started" | "pending")) {
        if !is_pending(case, &payment.id) {
            let there = case.ledger.acquirer.get(&payment.id).map_or("unknown", |it| it.status.as_str());
            let what = format!("it is still {} here and {there} at the acquirer, {}", payment.status, waited(case));
            found.push(Violation::new(NAME, what).about(&payment.id).at(case.ledger.read_ms));
        }
    }
    for refund in case.ledger.refunds.iter().filter(|it| !it.is_acknowledged) {
        let what = format!("its refund is not acknowledged, {}", waited(case));
        found.push(Violation::new(NAME, what).about(&refund.payment).at(case.ledger.read_ms));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::Fixture;

    fn broken(change: impl FnOnce(&mut Fixture)) -> Vec<String> {
        let mut fixture = Fixture::good();
        fixture.ledger.read_ms = 40_000 + 2_000 + PATIENCE_MS;
        change(&mut fixture);
        fixture.broken(check)
    }

    #[test]
    fn a_key_that_stays_open_is_reported() {
        for state in ["in_progress", "in_doubt"] {
            let found = broken(|it| it.key_row("k7").state = state.into());
            assert_eq!(found, [format!("it is still {state}, 92000 ms after the last fault, which is too late")]);
        }
        let early = broken(|it| {
            it.ledger.read_ms = 60_000;
            it.key_row("k7").state = "in_doubt".into();
        });
        assert!(early[0].contains("too early to judge"), "{early:?}");
    }

    #[test]
    fn what_the_acquirer_leaves_undecided_is_apart() {
        let pending = |it: &mut Fixture| {
            it.charge("k5").status = "pending".into();
            it.payment_row("k5").status = "pending".into();
            it.key_row("k5").state = "in_doubt".into();
        };
        assert_eq!(broken(pending), Vec::<String>::new());
        let unanswered = |it: &mut Fixture, key: &str| {
            let intent = it.history.intents.values_mut().find(|it| it.key.as_deref() == Some(key)).unwrap();
            intent.ended = Some((9, How::Unanswered));
        };
        let blocked = broken(|it| {
            pending(it);
            unanswered(it, "k5");
            unanswered(it, "k6");
        });
        assert_eq!(blocked, Vec::<String>::new());
        let other = broken(|it| {
            pending(it);
            unanswered(it, "k8");
        });
        assert_eq!(other, ["the buyer went on asking and never got an answer"]);
    }

    #[test]
    fn an_intent_without_an_end_is_reported() {
        let found = broken(|it| it.history.intents.values_mut().next().unwrap().ended = None);
        assert_eq!(found, ["the record of this intent has no end"]);
    }

    #[test]
    fn a_payment_or_refund_that_hangs_is_reported() {
        let payment = broken(|it| it.payment_row("k5").status = "started".into());
        assert!(payment[0].starts_with("it is still started here and declined at the acquirer"), "{payment:?}");
        let refund = broken(|it| it.ledger.refunds[0].is_acknowledged = false);
        assert!(refund[0].starts_with("its refund is not acknowledged"), "{refund:?}");
    }
}
