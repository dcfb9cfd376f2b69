//! The independent checker: what the buyers saw, what the databases and the acquirer say, and when which fault was at work, held
//! against what the shop promises.
//!
//! It knows the promises and the published derivation of ids, and nothing of the code that keeps them. It is a pure function, so
//! that a recorded run can be judged again, also by a later and stricter checker.

mod answer;
mod case;
pub mod derive;
#[cfg(test)]
mod fixture;
mod request;
mod rules;
mod transitions;
mod violation;

use crate::{edge::Window, history::History, ledger::Ledger};

pub use answer::{Class, Problem};
pub use case::{Case, Route, encoded, key_of};
pub use violation::{KeyId, Violation};

/// Every promise that was broken, and how.
pub fn check(history: &History, ledger: &Ledger, windows: &[Window]) -> Vec<Violation> {
    let case = Case::new(history, ledger, windows);
    let mut violations: Vec<Violation> = rules::ALL.iter().flat_map(|(_, rule)| rule(&case)).collect();
    violations.sort_by_key(|violation| violation.at_ms);
    violations
}

/// The names of all rules, in the order in which they are checked.
pub fn rules() -> Vec<&'static str> {
    rules::ALL.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fixture::Fixture;

    #[test]
    fn a_good_campaign_breaks_no_rule() {
        assert_eq!(Fixture::good().violations(), []);
    }

    #[test]
    fn violations_come_in_the_order_in_which_they_happened() {
        let mut fixture = Fixture::good();
        fixture.heard("k1", 1).body.push(' ');
        fixture.heard("k2", 1).body.push(' ');
        let at: Vec<u64> = fixture.violations().iter().map(|violation| violation.at_ms).collect();
        assert!(at.len() >= 2 && at.is_sorted(), "{at:?}");
    }
}
