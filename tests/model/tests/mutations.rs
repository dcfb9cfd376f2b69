//! The checks can fail: every rule that is left out is caught, as the harm that it must do, with a trace that can be read.

use model::{checking, mutations::Mutation, properties::Rule};

#[test]
fn every_rule_that_is_left_out_is_caught() {
    for (mutation, name) in Mutation::ALL {
        let checked = checking::catch(mutation);
        let rule = mutation.breaks();
        let others: Vec<&str> = checked.broken.iter().map(|(rule, _)| rule.name()).collect();
        let trace =
            checked.trace_of(rule).unwrap_or_else(|| panic!("{name} does not break `{}`: {others:?}", rule.name()));
        println!("== {name} breaks: {}\n{}\n", rule.name(), trace.join("\n"));
        assert!(trace.len() >= 3, "{name}: nothing goes wrong in so few steps");
        assert!(trace.iter().all(|line| line.len() > "99. ".len()), "{name}: a step without words");
    }
}

#[test]
fn every_rule_is_broken_by_some_mutation() {
    for (rule, name) in Rule::ALL {
        assert!(Mutation::ALL.iter().any(|(mutation, _)| mutation.breaks() == rule), "nothing breaks `{name}`");
    }
}

#[test]
fn every_mutation_has_a_name_of_its_own() {
    for (mutation, name) in Mutation::ALL {
        assert_eq!((Mutation::parse(name), mutation.name()), (Some(mutation), name));
    }
}
