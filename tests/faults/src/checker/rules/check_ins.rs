//! A ticket lets its bearer in once: at most one request was told that it was the first, and all were told the same moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::checker::{Case, KeyId, Route, Violation, case::key_of};

pub(super) const NAME: &str = "check-ins";

#[derive(Default)]
struct Uses {
    /// The keys under which, or the requests by which, it was used for the first time.
    first: BTreeSet<Result<KeyId, u64>>,
    moments: BTreeSet<String>,
    last_ms: u64,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut tickets = BTreeMap::<&str, Uses>::new();
    for call in &case.history.calls {
        let (Route::CheckIn(ticket), Some((ms, answer))) = (Route::of(call), call.answered()) else { continue };
        if answer.status != 200 {
            continue;
        }
        let uses = tickets.entry(ticket).or_default();
        let said = answer.json();
        if said["alreadyUsed"] == false {
            uses.first.insert(key_of(call).ok_or(call.id));
        }
        uses.moments.insert(said["usedAt"].to_string());
        uses.last_ms = ms;
    }
    let mut found = Vec::new();
    for (ticket, uses) in tickets {
        if uses.first.len() > 1 {
            let what = format!("{} requests were told that it was used for the first time", uses.first.len());
            found.push(Violation::new(NAME, what).about(ticket).at(uses.last_ms));
        }
        if uses.moments.len() > 1 {
            let what = format!("it was first used at {:?}", uses.moments);
            found.push(Violation::new(NAME, what).about(ticket).at(uses.last_ms));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, USED_AT, json};

    fn used_again(already_used: bool, used_at: &str) -> Vec<String> {
        let mut fixture = Fixture::good();
        let ticket = fixture.order_row("k1").tickets[0].0.clone();
        let body = format!(r#"{{"ticketId":"{ticket}","alreadyUsed":{already_used},"usedAt":"{used_at}"}}"#);
        fixture.sent("a", "POST", &format!("/v1/tickets/{ticket}/check-in"), json(200, &body));
        fixture.broken(check)
    }

    #[test]
    fn a_ticket_that_lets_two_in_is_reported() {
        assert_eq!(used_again(true, USED_AT), Vec::<String>::new());
        assert_eq!(used_again(false, USED_AT), ["2 requests were told that it was used for the first time"]);
    }

    #[test]
    fn a_first_use_that_moves_is_reported() {
        assert!(used_again(true, "2026-01-02T03:04:06.678Z")[0].starts_with("it was first used at"));
    }
}
