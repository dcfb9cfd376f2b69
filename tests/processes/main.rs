//! Real processes on a real Postgres: killed, stopped and told to leave.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod killed;
mod leaving;
mod order_of_start;
mod paused;
#[cfg(debug_assertions)]
mod points;
mod readme;
mod rolling;
mod stalled;
mod starting;
mod store_down;
mod tls;
