//! One connection to a server, plain or over TLS.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, NoTls};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::refusal::Refusal;
use super::tls::{Tls, complaint};
use crate::error::chain;

/// A connection to a server, before it belongs to a pool.
pub(super) struct Line {
    pub(super) client: Client,
    /// Moves the bytes; ends with the line.
    driver: AbortOnDropHandle<()>,
}

// === impl Line ===

impl Line {
    /// Connects as the configuration says.
    pub(super) async fn open(config: &Config, tls: &Tls) -> Result<Self, Refusal> {
        match tls.connector().filter(|_| config.get_ssl_mode() != SslMode::Disable) {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok(Self::driven(client, connection))
            }
            Some(connector) => {
                let connected = config.connect(connector).await;
                let (client, connection) =
                    connected.map_err(|error| complaint(&error).map_or(Refusal::Driver(error), Refusal::Unsafe))?;
                Ok(Self::driven(client, connection))
            }
        }
    }

    /// The parts as a pool wants them; it ends the task with the client.
    pub(super) fn into_parts(self) -> (Client, JoinHandle<()>) {
        (self.client, self.driver.detach())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the pool asks for the handle, and the task ends with its connection"
    )]
    fn driven<S, T>(client: Client, connection: Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(error = chain(&error), "a connection to Postgres ended");
            }
        });
        Self { client, driver: AbortOnDropHandle::new(driver) }
    }
}
