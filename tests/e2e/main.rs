//! The contract, from outside: HTTP in, money checked at the acquirer, on both stores, with time moved by hand.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod checkouts;
mod crowd;
mod drain;
mod errors;
mod failover;
mod faults_page;
mod headers;
mod ids;
mod late_money;
mod lost_answers;
mod messages;
mod pages;
mod payments;
mod published;
mod reconciler;
mod releases;
mod remembered;
mod routes;
mod sessions;
mod stock;
mod tenants;
mod unfinished;
