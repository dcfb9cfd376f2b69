//! From a name to every address behind it.

use futures::future::BoxFuture;
use std::{io, net::SocketAddr};

/// Finds the addresses of a service's replicas.
pub trait Resolve: Send + Sync + 'static {
    /// All of them, now. `host` is as the endpoint has it; an IPv6 address is in brackets.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

    /// Whether the answer can change.
    fn may_change(&self, host: &str) -> bool;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct Dns;

impl Resolve for Dns {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await?;
            Ok(found.collect())
        })
    }

    fn may_change(&self, host: &str) -> bool {
        host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err()
    }
}
