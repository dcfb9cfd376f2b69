//! A TCP proxy on one road, which makes the road's trouble.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use chassis::tasks::Tasks;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

mod connection;
#[cfg(test)]
mod tests;

use self::connection::Connection;

/// What is wrong with a road. Whoever makes trouble must end it with [`Trouble::None`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trouble {
    /// Nothing: bytes go both ways as they come.
    #[default]
    None,
    /// Connections are reset, and new ones too.
    Cut,
    /// Bytes take so much longer, each way.
    Delay(Duration),
    /// Bytes stop on their way and arrive all at once when the trouble ends: what was given up long ago still happens.
    Stall,
    /// New connections are accepted, bytes are swallowed both ways, and nobody is told until the trouble ends.
    HalfOpen,
    /// Requests arrive, their answers do not, and soon after the first lost answer the connection is reset.
    DropReply,
}

/// A proxy before one server, or before several of which the first that accepts is taken.
#[derive(Clone, Debug)]
pub struct Proxy {
    name: Arc<str>,
    address: SocketAddr,
    trouble: Arc<watch::Sender<Trouble>>,
}

// === impl Proxy ===

impl Proxy {
    /// Listens at `address` and carries to the first of `servers` that accepts.
    pub async fn start(
        name: &str,
        address: SocketAddr,
        servers: Vec<SocketAddr>,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("the proxy {name} at {address}"))?;
        let trouble = Arc::new(watch::Sender::new(Trouble::None));
        let proxy = Self { name: name.into(), address: listener.local_addr()?, trouble: trouble.clone() };
        let connections = tasks.clone();
        tasks.spawn("proxy", async move {
            loop {
                let Ok((caller, _)) = listener.accept().await else { continue };
                let (servers, trouble) = (servers.clone(), trouble.subscribe());
                connections.spawn("proxied connection", async move {
                    Connection::new(caller, trouble).carry(|| first_that_accepts(servers)).await;
                });
            }
        });
        Ok(proxy)
    }

    /// As in the plan and the report: `gateway-0/idem`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, for connections there are and for new ones.
    pub fn make(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }
}

async fn first_that_accepts(servers: Vec<SocketAddr>) -> Option<TcpStream> {
    for server in servers {
        if let Ok(stream) = TcpStream::connect(server).await {
            return Some(stream);
        }
    }
    None
}
