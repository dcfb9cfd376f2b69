//! The idempotency service over a real listener, on both stores.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "rpc/access.rs"]
mod access;
#[path = "served/calls.rs"]
mod calls;
#[path = "rpc/deadlines.rs"]
mod deadlines;
#[path = "rpc/input.rs"]
mod input;
#[path = "rpc/life.rs"]
mod life;
#[path = "rpc/lifecycle.rs"]
mod lifecycle;
#[path = "rpc/many.rs"]
mod many;
#[path = "rpc/outage.rs"]
mod outage;
#[path = "served/proxy.rs"]
mod proxy;
#[path = "served/raw.rs"]
mod raw;
#[path = "served/server.rs"]
mod server;
#[path = "rpc/states.rs"]
mod states;
