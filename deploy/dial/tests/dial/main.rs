//! Real sockets on loopback: several replicas, certificates made here, and servers of the chassis behind them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod certificates;
mod replicas;
mod server;
mod tls;
