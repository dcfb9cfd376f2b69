//! Outside the windows of faults, and a moment after them to recover, every request is answered, and none with a 5xx.

use serde_json::Value;

use crate::{
    checker::{Case, Problem, Route, Violation, case::key_of},
    history::{Answer, Call, Heard, Why},
};

pub(super) const NAME: &str = "availability";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for call in &case.history.calls {
        let Some(what) = failure(call) else { continue };
        let until_ms = call.done_ms.unwrap_or(u64::MAX);
        if case.is_excused(call.gateway, call.sent_ms, until_ms) || is_of_the_acquirer(call) {
            continue;
        }
        let mut violation = Violation::new(NAME, format!("call {} {what}, and no fault was at work", call.id));
        violation.key = key_of(call);
        found.push(violation.at(call.done_ms.unwrap_or(call.sent_ms)));
    }
    found
}

fn failure(call: &Call) -> Option<String> {
    match &call.heard {
        Some(Heard::Answer(answer)) if answer.status >= 500 => {
            Some(format!("was answered {} {}", answer.status, Problem::of(answer).name()))
        }
        Some(Heard::Nothing(Why::Broken(cause))) => Some(format!("lost its connection ({cause})")),
        Some(Heard::Nothing(Why::TimedOut)) => Some("was never answered".to_owned()),
        None => Some("has no end in the record".to_owned()),
        Some(Heard::Answer(_) | Heard::Nothing(Why::Left)) => None,
    }
}

/// Some methods of payment make the acquirer fail on purpose, or answer later than it is waited for: then nobody may know more in time
/// than that it is in doubt.
fn is_of_the_acquirer(call: &Call) -> bool {
    let is_in_doubt =
        |answer: &Answer| answer.status == 503 && Problem::of(answer).name() == "upstream_unavailable/in_doubt";
    if Route::of(call) != Route::Pay || !call.answer().is_some_and(is_in_doubt) {
        return false;
    }
    let body: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let method = body["paymentMethod"].as_str().unwrap_or_default();
    matches!(method, "pm_error" | "pm_drop" | "pm_charge_then_hang" | "pm_pending_charge_then_hang")
        || method.starts_with("pm_late_")
        || method.starts_with("pm_slow_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checker::fixture::{Fixture, problem},
        edge::Window,
    };

    fn failing(change: impl Fn(&mut Call), windows: &[Window]) -> Vec<String> {
        let mut fixture = Fixture::good();
        fixture.windows = windows.to_vec();
        change(fixture.sent("a", "GET", "/v1/orders/x", problem(503, "upstream_unavailable", "in_doubt")));
        fixture.broken(check)
    }

    fn window(target: &str, from_ms: u64, until_ms: u64) -> Window {
        Window { fault: "kill".into(), target: target.into(), from_ms, until_ms: Some(until_ms) }
    }

    #[test]
    fn a_failure_without_a_fault_is_reported() {
        assert!(failing(|_| {}, &[])[0].contains("was answered 503 upstream_unavailable/in_doubt"));
        let broken = |call: &mut Call| call.heard = Some(Heard::Nothing(Why::Broken("reset".into())));
        assert!(failing(broken, &[])[0].contains("lost its connection (reset)"));
        assert!(failing(|call| call.heard = Some(Heard::Nothing(Why::TimedOut)), &[])[0].contains("never answered"));
        assert!(failing(|call| (call.heard, call.done_ms) = (None, None), &[])[0].contains("no end"));
        assert_eq!(failing(|call| call.heard = Some(Heard::Nothing(Why::Left)), &[]), Vec::<String>::new());
    }

    #[test]
    fn a_fault_excuses_what_happens_while_it_is_at_work_and_no_more() {
        // The request is sent at about a second.
        assert_eq!(failing(|_| {}, &[window("orders-0", 0, 100_000)]), Vec::<String>::new());
        assert_eq!(failing(|_| {}, &[window("orders-0", 200_000, 300_000)]).len(), 1);
        assert_eq!(failing(|_| {}, &[window("gateway-1", 0, 100_000)]).len(), 1);
        assert_eq!(failing(|call| call.gateway = 1, &[window("gateway-1", 0, 100_000)]), Vec::<String>::new());
    }

    #[test]
    fn a_payment_that_the_acquirer_is_told_to_lose_is_in_doubt() {
        let pay = |method: &'static str| {
            move |call: &mut Call| {
                (call.method, call.path) = ("POST".into(), "/v1/payments".into());
                call.body = format!(r#"{{"orderId":"o","paymentMethod":"{method}"}}"#);
            }
        };
        for method in ["pm_drop", "pm_error", "pm_late_900", "pm_charge_then_hang", "pm_slow_1500"] {
            assert_eq!(failing(pay(method), &[]), Vec::<String>::new(), "{method}");
        }
        assert_eq!(failing(pay("pm_approved"), &[]).len(), 1);
    }
}
