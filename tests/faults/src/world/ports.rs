//! Ports for processes that come back on the one they had.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;

/// Below the ports that the operating system gives to callers: a port must stay free while its process is down.
const FIRST: u16 = 12_000;
const END: u16 = 31_000;

/// Hands out ports that nobody listens on, each once.
#[derive(Debug)]
pub struct Ports {
    next: u16,
}

// === impl Ports ===

impl Ports {
    /// Campaigns that run side by side begin at different places.
    pub fn new() -> Self {
        let spread = u16::try_from(std::process::id() % 900).unwrap_or_default();
        Self { next: FIRST + spread * 20 }
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
