//! The protocol as it is: no rule is broken in any state of the small configurations, and they are wide enough to mean something.

#![allow(clippy::print_stdout, reason = "clippy sees helpers of tests as no tests")]

use model::{
    checking::{self, Checked, Search},
    configuration::{Configuration, Workload},
};

fn checked(workload: Workload) -> Checked {
    let checked = checking::check(Configuration::small(workload), Search::Breadth, 1, |_| {});
    println!("{} states by {} steps, at most {} deep", checked.states, checked.steps, checked.depth);
    for (rule, trace) in &checked.broken {
        println!("{} is broken:\n{}", rule.name(), trace.join("\n"));
    }
    checked
}

#[test]
fn orders_keep_every_rule_in_every_state() {
    let checked = checked(Workload::Orders);
    assert!(checked.broken.is_empty(), "see the trace above");
    assert_eq!(checked.unseen, [""; 0], "the model is too narrow to show these");
    // A model that shrinks by accident proves less and passes all the same.
    assert!(checked.states > 300_000, "only {} states", checked.states);
}

#[test]
fn payments_keep_every_rule_in_every_state() {
    let checked = checked(Workload::Payments);
    assert!(checked.broken.is_empty(), "see the trace above");
    assert_eq!(checked.unseen, [""; 0], "the model is too narrow to show these");
    assert!(checked.states > 500_000, "only {} states", checked.states);
}
