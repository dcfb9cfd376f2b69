//! What is read never goes back: of two answers about an order or a payment, one given before the other was asked for, the later
//! one shows a status that can follow.

use std::collections::BTreeMap;

use crate::{
    checker::{
        Case, Route, Violation,
        case::key_of,
        transitions::{Thing, is_reachable, may_be_shown_as},
    },
    history::Call,
};

pub(super) const NAME: &str = "reads";

/// A status that held at some moment between two.
#[derive(Clone, Debug)]
struct Sight {
    from_ms: u64,
    until_ms: u64,
    status: String,
    call: u64,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut sights = BTreeMap::<(Thing, String), Vec<Sight>>::new();
    for call in &case.history.calls {
        if let Some((thing, id, sight)) = sight(case, call) {
            sights.entry((thing, id)).or_default().push(sight);
        }
    }
    sights.into_iter().flat_map(|((thing, id), sights)| check_thing(case, thing, &id, sights)).collect()
}

fn sight(case: &Case<'_>, call: &Call) -> Option<(Thing, String, Sight)> {
    let (until_ms, answer) = call.answered()?;
    if !(200..300).contains(&answer.status) {
        return None;
    }
    let thing = match Route::of(call) {
        Route::Place | Route::Confirm(_) | Route::Cancel(_) | Route::Order(_) => Thing::Order,
        Route::Pay | Route::Payment(_) => Thing::Payment,
        Route::CheckIn(_) | Route::Link(_) | Route::TicketType(_) | Route::Key(_) | Route::Other => return None,
    };
    // The answer under a key is what was true at some moment since the key was first sent.
    let from_ms = key_of(call)
        .and_then(|key| case.keyed.get(&key)?.iter().map(|call| call.sent_ms).min())
        .unwrap_or(call.sent_ms);
    let body = answer.json();
    let (id, status) = (body["id"].as_str()?.to_owned(), body["status"].as_str()?.to_owned());
    Some((thing, id, Sight { from_ms, until_ms, status, call: call.id }))
}

fn check_thing(case: &Case<'_>, thing: Thing, id: &str, mut sights: Vec<Sight>) -> Vec<Violation> {
    let mut found = Vec::new();
    sights.sort_by_key(|sight| sight.until_ms);
    for (at, later) in sights.iter().enumerate() {
        let before = sights[..at].iter().filter(|earlier| earlier.until_ms < later.from_ms);
        for earlier in before.filter(|earlier| !is_reachable(thing, &earlier.status, &later.status)) {
            let what = format!(
                "call {} saw it {} and call {}, sent afterwards, saw it {}",
                earlier.call, earlier.status, later.call, later.status
            );
            found.push(Violation::new(NAME, what).about(id).at(later.until_ms));
        }
    }
    let kept = match thing {
        Thing::Order => case.orders.get(id).map(|row| row.status.as_str()),
        Thing::Payment => case.payments.get(id).map(|row| row.status.as_str()),
    };
    if let Some(kept) = kept {
        for sight in sights {
            let is_lapsed = thing == Thing::Order && may_be_shown_as(kept, &sight.status);
            if !is_lapsed && !is_reachable(thing, &sight.status, kept) {
                let what = format!("call {} saw it {} and in the end it is {kept}", sight.call, sight.status);
                found.push(Violation::new(NAME, what).about(id).at(sight.until_ms));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::Fixture;

    fn read(it: &mut Fixture, key: &str, status: &str) -> u64 {
        let order = it.order_row(key).id.clone();
        let answer = it.order_answer(&order, status);
        it.sent("a", "GET", &format!("/v1/orders/{order}"), answer).id
    }

    #[test]
    fn a_read_that_goes_back_is_reported() {
        let mut fixture = Fixture::good();
        read(&mut fixture, "k1", "paid");
        assert_eq!(fixture.broken(check), Vec::<String>::new());
        let late = read(&mut fixture, "k1", "pending");
        let found = fixture.broken(check);
        assert!(found.iter().any(|what| what.ends_with(&format!("and call {late}, sent afterwards, saw it pending"))));
    }

    #[test]
    fn reads_at_the_same_time_may_be_seen_in_either_order() {
        let mut fixture = Fixture::good();
        let (one, other) = (read(&mut fixture, "k1", "paid"), read(&mut fixture, "k1", "pending"));
        let sent_ms = fixture.history.calls.iter().find(|call| call.id == one).unwrap().sent_ms;
        for call in fixture.history.calls.iter_mut().filter(|call| call.id == one || call.id == other) {
            (call.sent_ms, call.done_ms) = (sent_ms, Some(sent_ms + 9));
        }
        // The payment and an earlier read had shown it paid, so the one that shows it pending is wrong whichever came first.
        let found = fixture.broken(check);
        assert!(
            !found.is_empty() && found.iter().all(|what| !what.starts_with(&format!("call {one} saw"))),
            "{found:?}"
        );
    }

    #[test]
    fn an_end_that_cannot_follow_is_reported() {
        let mut fixture = Fixture::good();
        fixture.order_row("k4").status = "paid".into();
        assert!(fixture.broken(check)[0].contains("saw it cancelled and in the end it is paid"));

        // A lapsed hold that nobody has swept is kept as pending.
        let mut fixture = Fixture::good();
        fixture.history.calls.retain(|call| call.method == "GET");
        fixture.order_row("k4").status = "pending".into();
        read(&mut fixture, "k4", "expired");
        assert_eq!(fixture.broken(check), Vec::<String>::new());
    }
}
