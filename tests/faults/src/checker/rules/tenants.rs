//! What belongs to one tenant does not exist for another: no answer names it, and asking for it finds nothing.

use std::collections::HashMap;

use crate::{
    checker::{Case, Violation, case::key_of},
    history::Purpose,
};

pub(super) const NAME: &str = "tenants";

/// How long a UUID is, as text.
const ID_LENGTH: usize = 36;

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut owners = HashMap::<&str, &str>::new();
    for order in &case.ledger.orders {
        owners.insert(&order.id, &order.tenant);
        owners.extend(order.tickets.iter().map(|(ticket, _)| (ticket.as_str(), order.tenant.as_str())));
    }
    owners.extend(case.ledger.payments.iter().map(|row| (row.id.as_str(), row.tenant.as_str())));
    let mut found = Vec::new();
    for call in &case.history.calls {
        let Some((ms, answer)) = call.answered() else { continue };
        let mut say = |what: String| {
            let mut violation = Violation::new(NAME, what).at(ms);
            violation.key = key_of(call);
            found.push(violation);
        };
        if call.purpose == Purpose::Trespass && !(answer.status == 404 || answer.status >= 500) {
            say(format!(
                "call {} asked for what belongs to another tenant and was answered {}",
                call.id, answer.status
            ));
        }
        let named = ids(&answer.body).find(|id| owners.get(id).is_some_and(|owner| *owner != call.tenant));
        if let Some(id) = named {
            say(format!("call {} of tenant {} was told of {id}, which is another tenant's", call.id, call.tenant));
        }
    }
    found
}

/// Everything in a text that could be an id.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_hexdigit() || c == '-')).filter(|word| word.len() == ID_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, json, problem};

    #[test]
    fn an_answer_that_names_what_is_anothers_is_reported() {
        let mut fixture = Fixture::good();
        let order = fixture.order_row("k1").id.clone();
        fixture.sent("b", "GET", "/v1/orders/other", json(200, &format!(r#"{{"note":"see {order}."}}"#)));
        assert!(fixture.broken(check)[0].contains("was told of"));
    }

    #[test]
    fn a_trespass_that_finds_something_is_reported() {
        for (answer, is_reported) in [(problem(404, "not_found", ""), false), (json(200, "{}"), true)] {
            let mut fixture = Fixture::good();
            fixture.sent("b", "GET", "/v1/orders/other", answer).purpose = Purpose::Trespass;
            assert_eq!(!fixture.broken(check).is_empty(), is_reported);
        }
    }
}
