//! The contract, from outside: HTTP in, money checked at the acquirer, on both stores, with time moved by hand.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod crowd;
mod drain;
mod errors;
mod headers;
mod late_money;
mod messages;
mod pages;
mod payments;
mod reconciler;
mod releases;
mod remembered;
mod routes;
mod stock;
mod unfinished;
