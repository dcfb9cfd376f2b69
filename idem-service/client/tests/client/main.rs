//! The client against a server that says what the test wrote for it, over real connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod calls;
mod connections;
mod folding;
mod replicas;
mod server;
