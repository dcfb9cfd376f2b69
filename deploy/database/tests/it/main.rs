//! The promises of the crate, held against the real engines.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "clippy sees helpers of tests as no tests")]

mod conformance;
mod migrating;
mod postgres;
mod postgres_faults;
mod proxy;
mod rows;
mod sqlite;
mod store;
