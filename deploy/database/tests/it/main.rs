//! The promises of the crate, held against the real engines.

mod conformance;
mod migrating;
mod postgres;
mod postgres_faults;
mod proxy;
mod sqlite;
mod store;
