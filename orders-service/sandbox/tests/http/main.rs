//! The sandbox over real HTTP on loopback: every method and every control.
//!
//! Nothing here waits for time to pass: a payment that has to mature is awaited by its answer or its webhook, and one that
//! must not mature during a test takes an hour.

#![allow(missing_docs, reason = "tests say what they are by their names")]
#![allow(clippy::unwrap_used, reason = "what helpers cannot do is the test's failure")]

mod control;
mod payments;
mod process;
mod refunds;
mod webhooks;
mod world;
