//! What an attacker tries, against a running system: each attack is refused as documented, and others are served meanwhile.
//!
//! What is tried with thousands of generated inputs stands in `tests/fuzz`; what a peer that stalls does to a process that ends, in
//! `tests/processes`. Here the attacks are the known ones, each whole.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bodies;
mod brute_force;
mod bystander;
mod grpc;
mod isolation;
mod limits;
mod secrets;
mod slow;
mod smuggling;
mod webhooks;
mod wire;
