//! The whole system in one process, over real loopback ports, through the same `bind` and `serve` as production.
//!
//! `cargo run` starts it for a newcomer; the end-to-end tests start it with the stores' clocks in their hand.

mod demo;
mod ports;
mod settings;
mod world;

pub use gateway::Limits;
pub use ports::{Addresses, Ports};
pub use settings::{Data, Flags, Settings};
pub use world::World;
