//! Where the parts listen.

use std::net::SocketAddr;

/// Which ports to take on 127.0.0.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// Those of production: 8080 and 8081, 7001 and 7002, 7101 and 7102, 8090.
    Production,
    /// Seven in a row from this one.
    From(u16),
    /// Any that are free.
    Any,
}

/// Where everything listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The gateway's REST.
    pub rest: SocketAddr,
    /// The gateway's health and metrics.
    pub gateway_admin: SocketAddr,
    /// The idempotency service's gRPC.
    pub idem: SocketAddr,
    /// The idempotency service's health, metrics and console.
    pub idem_admin: SocketAddr,
    /// The orders service's gRPC.
    pub orders: SocketAddr,
    /// The orders service's health and metrics.
    pub orders_admin: SocketAddr,
    /// The acquirer sandbox.
    pub sandbox: SocketAddr,
}

impl Ports {
    /// What to bind.
    pub(crate) fn addresses(self) -> Addresses {
        let [rest, gateway_admin, idem, idem_admin, orders, orders_admin, sandbox] = match self {
            Ports::Production => [8080, 8081, 7001, 7002, 7101, 7102, 8090],
            Ports::From(base) => std::array::from_fn(|i| base.saturating_add(i as u16)),
            Ports::Any => [0; 7],
        }
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Addresses { rest, gateway_admin, idem, idem_admin, orders, orders_admin, sandbox }
    }
}

impl Addresses {
    /// Each address and what it is for.
    pub(crate) fn named(&self) -> [(SocketAddr, &'static str); 7] {
        [
            (self.rest, "the gateway"),
            (self.gateway_admin, "the gateway's admin pages"),
            (self.idem, "the idempotency service"),
            (self.idem_admin, "the operator's console"),
            (self.orders, "the orders service"),
            (self.orders_admin, "the orders service's admin pages"),
            (self.sandbox, "the acquirer sandbox"),
        ]
    }
}
