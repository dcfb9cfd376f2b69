//! Seats are held as long as was said, and no longer than an undecided payment may prolong it.

use std::{
    collections::HashSet,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    checker::{Case, Route, Violation, case::key_of},
    history::{Answer, Call},
};

pub(super) const NAME: &str = "holds";

/// Clocks of one machine agree better than this, and moments are shown in milliseconds.
const TOLERANCE_MS: u64 = 500;

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let course = &case.history.course;
    // Where the store has no clock of its own, moving the clock of its service moves every hold.
    let was_moved = case.windows.iter().any(|it| it.fault == "clock" && it.target.starts_with("orders"));
    if course.hold_ttl_ms == 0 || (was_moved && !course.has_store_clock) {
        return Vec::new();
    }
    let paid: HashSet<String> =
        case.history.calls.iter().filter(|call| Route::of(call) == Route::Pay).map(order_of).collect();
    let mut found = Vec::new();
    for call in &case.history.calls {
        let Some((ms, answer)) = call.answered() else { continue };
        let what = match Route::of(call) {
            Route::Place if answer.status == 201 => placed(case, call, answer),
            Route::Order(id) if answer.status == 200 => shown(case, call, ms, answer, paid.contains(id)),
            _ => None,
        };
        if let Some(what) = what {
            let mut violation =
                Violation::new(NAME, format!("call {} was told {}: {what}", call.id, answer.body)).at(ms);
            violation.key = key_of(call);
            found.push(violation);
        }
    }
    found
}

fn placed(case: &Case<'_>, call: &Call, answer: &Answer) -> Option<String> {
    let said = answer.json();
    let (created, until) = (moment(case, &said["createdAt"])?, moment(case, &said["holdExpiresAt"])?);
    let promised = case.history.course.hold_ttl_ms;
    if until.checked_sub(created).is_none_or(|held| held.abs_diff(promised) > 1) {
        return Some(format!("that is no hold of {promised} ms"));
    }
    let first = key_of(call).and_then(|key| case.keyed.get(&key)?.iter().map(|call| call.sent_ms).min());
    let (from, to) = (first.unwrap_or(call.sent_ms), call.done_ms.unwrap_or(u64::MAX));
    let is_then = created + TOLERANCE_MS >= from && created <= to.saturating_add(TOLERANCE_MS);
    (!is_then).then(|| format!("it was asked for between {from} and {to} ms, and made at {created} ms"))
}

fn shown(case: &Case<'_>, call: &Call, done_ms: u64, answer: &Answer, may_be_prolonged: bool) -> Option<String> {
    let said = answer.json();
    let until = moment(case, &said["holdExpiresAt"])?;
    let last = if may_be_prolonged { until + case.history.course.hold_ttl_ms } else { until };
    match said["status"].as_str() {
        Some("expired") if done_ms + TOLERANCE_MS < until => Some(format!("its hold is alive until {until} ms")),
        Some("pending") if call.sent_ms > last + TOLERANCE_MS => Some(format!("its hold was over at {last} ms")),
        _ => None,
    }
}

/// A moment by the campaign's clock.
fn moment(case: &Case<'_>, text: &Value) -> Option<u64> {
    let time: SystemTime = humantime::parse_rfc3339(text.as_str()?).ok()?;
    let millis = u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    millis.checked_sub(case.history.course.began_at_ms)
}

fn order_of(call: &Call) -> String {
    let asked: Value = serde_json::from_str(&call.body).unwrap_or_default();
    asked["orderId"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checker::fixture::Fixture, edge::Window};

    /// Every order was made at 1000 ms, when the first was asked for, and is held for 30 s.
    fn good() -> Fixture {
        let mut fixture = Fixture::good();
        fixture.history.calls.retain(|call| call.key.as_deref().is_none_or(|key| key == "k1" || key == "k2"));
        fixture.history.calls.retain(|call| call.tenant == "a");
        fixture.history.course.hold_ttl_ms = 30_000;
        fixture.history.course.began_at_ms = 1_767_323_044_678;
        for place in 0..3 {
            let answer = fixture.heard("k1", place);
            let [before, after] = answer.body.split("\"holdExpiresAt\":").collect::<Vec<_>>()[..] else { panic!() };
            let until = after.replace("03:04:05", "03:04:35");
            answer.body = format!("{before}\"holdExpiresAt\":{until}");
        }
        fixture
    }

    fn seen(key: &str, status: &str, at_ms: u64) -> Vec<String> {
        let mut fixture = good();
        let order = fixture.order_row(key).id.clone();
        let mut answer = fixture.order_answer(&order, status);
        answer.body = answer.body.replace("03:04:05", "03:04:35");
        let call = fixture.sent("a", "GET", &format!("/v1/orders/{order}"), answer);
        (call.sent_ms, call.done_ms) = (at_ms, Some(at_ms + 5));
        let id = call.id;
        fixture.history.calls.retain(|call| call.method == "POST" || call.id == id);
        fixture.broken(check)
    }

    #[test]
    fn a_hold_that_ends_too_early_or_too_late_is_reported() {
        assert_eq!(seen("k1", "expired", 31_100), Vec::<String>::new());
        assert!(seen("k1", "expired", 20_000)[0].contains("its hold is alive until 31000 ms"));
        // There is a payment for the order of k1, which may have prolonged its hold, and none for that of k7.
        assert_eq!(seen("k1", "pending", 60_000), Vec::<String>::new());
        assert!(seen("k1", "pending", 62_000)[0].contains("its hold was over at 61000 ms"));
        assert!(seen("k7", "pending", 32_000)[0].contains("its hold was over at 31000 ms"));
    }

    #[test]
    fn a_hold_of_another_length_or_from_another_time_is_reported() {
        assert_eq!(good().broken(check), Vec::<String>::new());
        let mut fixture = good();
        fixture.history.course.hold_ttl_ms = 20_000;
        assert!(fixture.broken(check)[0].contains("that is no hold of 20000 ms"));
        let mut fixture = good();
        fixture.history.course.began_at_ms -= 600_000;
        assert!(fixture.broken(check)[0].contains("and made at 601000 ms"));
        // By a clock that was moved, nothing can be said.
        fixture.windows.push(Window { fault: "clock".into(), target: "orders-0".into(), from_ms: 1, until_ms: None });
        assert_eq!(fixture.broken(check), Vec::<String>::new());
        fixture.history.course.has_store_clock = true;
        assert!(!fixture.broken(check).is_empty());
    }
}
