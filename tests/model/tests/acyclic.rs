//! No sequence of steps leads back to where it was. On this rests what the checker says about `eventually`: every path ends, and is
//! judged at its end.

#![allow(clippy::print_stdout, reason = "clippy sees helpers of tests as no tests")]

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use model::{
    configuration::{Configuration, Workload},
    model::Protocol,
    world::World,
};
use stateright::Model as _;

fn protocol(workload: Workload) -> Protocol {
    Protocol { configuration: Configuration::small(workload), mutation: None }
}

#[test]
fn no_path_of_orders_comes_back_to_where_it_was() {
    assert_acyclic(&protocol(Workload::Orders));
}

#[test]
fn no_path_of_payments_comes_back_to_where_it_was() {
    assert_acyclic(&protocol(Workload::Payments));
}

/// Walks depth first. True in the map: on the path that is being walked.
fn assert_acyclic(protocol: &Protocol) {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut seen: HashMap<u64, bool> = HashMap::new();
    let mut path: Vec<(u64, Vec<World>)> = Vec::new();
    let mut ends = 0;
    for start in protocol.init_states() {
        seen.insert(hasher.hash_one(&start), true);
        path.push((hasher.hash_one(&start), protocol.next_states(&start)));
    }
    while let Some((here, nexts)) = path.last_mut() {
        let Some(next) = nexts.pop() else {
            seen.insert(*here, false);
            path.pop();
            continue;
        };
        let name = hasher.hash_one(&next);
        match seen.get(&name) {
            Some(true) => panic!("a path comes back after {} steps to {next:#?}", path.len()),
            Some(false) => {}
            None => {
                let nexts = protocol.next_states(&next);
                ends += usize::from(nexts.is_empty());
                seen.insert(name, true);
                path.push((name, nexts));
            }
        }
    }
    println!("{} states, {ends} of them ends", seen.len());
    assert!(seen.len() > 300_000 && ends > 100, "{} states, {ends} of them ends", seen.len());
}
