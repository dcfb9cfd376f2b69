//! The admin service and the operator's console.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

// Each test binary uses its own part of the words shared with the others.
#[allow(dead_code)]
#[path = "served/calls.rs"]
mod calls;
#[path = "admin/console.rs"]
mod console;
#[path = "admin/listing.rs"]
mod listing;
#[path = "admin/resolving.rs"]
mod resolving;
#[path = "served/server.rs"]
mod server;
