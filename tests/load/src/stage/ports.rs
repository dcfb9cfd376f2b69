//! Free addresses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;

/// Below the ports that the operating system gives to callers.
const FIRST: u16 = 12_000;
const END: u16 = 31_000;

/// Hands out addresses that nobody listens on, each once.
pub struct Ports {
    next: u16,
}

// === impl Ports ===

impl Ports {
    /// Runs side by side begin at different places.
    pub fn new() -> Self {
        Self { next: FIRST + u16::try_from(std::process::id() % 900).unwrap_or_default() * 20 }
    }

    /// The next free one.
    pub fn free(&mut self) -> anyhow::Result<SocketAddr> {
        while self.next < END {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.next));
            self.next += 1;
            if TcpListener::bind(address).is_ok() {
                return Ok(address);
            }
        }
        None.context("no free port is left")
    }
}
