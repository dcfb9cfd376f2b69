//! The layer's rules, one test each: a memory store that decides as the product does, a scripted inner service and a scripted system
//! of record. Time is tokio's, paused and moved by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod admission;
mod concurrency;
mod execution;
mod memory;
mod outages;
mod recovery;
mod replay;
mod replays;
mod scripted;
mod spans;
mod superseded;
mod wait;
mod world;
