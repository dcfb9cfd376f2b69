//! A webhook that the acquirer did not sign is refused, and nothing is kept of it.

use std::collections::BTreeSet;

use crate::{
    checker::{Case, Violation},
    history::Deed,
};

pub(super) const NAME: &str = "forgery";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let kept: BTreeSet<&str> = case.ledger.events.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for forged in case.history.controls.iter().filter(|control| control.deed == Deed::Forge) {
        let what = match forged.status {
            _ if kept.contains(forged.target.as_str()) => "a forged event was believed".to_owned(),
            Some(400 | 401) | None => continue,
            // Not reached: a failure is judged like every other.
            Some(status) if status >= 500 => continue,
            Some(status) => format!("a forged event was answered {status}"),
        };
        found.push(Violation::new(NAME, what).about(&forged.target).at(forged.ms));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::Fixture;

    #[test]
    fn a_forged_event_that_is_accepted_or_kept_is_reported() {
        let mut fixture = Fixture::good();
        fixture.history.controls[0].status = Some(200);
        assert_eq!(fixture.broken(check), ["a forged event was answered 200"]);
        let mut fixture = Fixture::good();
        fixture.ledger.events.push("evt_x".into());
        assert_eq!(fixture.broken(check), ["a forged event was believed"]);
        let mut fixture = Fixture::good();
        fixture.history.controls[0].status = Some(503);
        assert_eq!(fixture.broken(check), Vec::<String>::new());
    }
}
