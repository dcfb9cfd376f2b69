//! Why there is no connection, also where only an error of the driver may say so.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error, NoTls};

use crate::error::chain;

/// Why there is no connection: what every host answered.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(super) tries: Vec<(String, Refusal)>,
}

/// What one host answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{}", chain(.0))]
    Driver(#[from] tokio_postgres::Error),
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Unsafe(String),
}

/// A stream that breaks at the first word, with a [`ConnectError`] as the reason.
struct Broken(Option<ConnectError>);

// === impl ConnectError ===

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tries.is_empty() {
            return f.write_str("the pool is closing");
        }
        for (place, (host, refusal)) in self.tries.iter().enumerate() {
            write!(f, "{}{host}: {refusal}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}

impl ConnectError {
    /// The server's own error, if one is there that names this SQLSTATE.
    pub(super) fn has_state(&self, state: &SqlState) -> bool {
        self.tries.iter().any(|(_, refusal)| matches!(refusal, Refusal::Driver(error) if error.code() == Some(state)))
    }

    /// The same as an error of the driver: the pool takes no other from whoever connects for it, and the driver makes
    /// them out of what its stream says.
    pub(super) async fn into_driver_error(self) -> Error {
        let mut config = Config::new();
        config.user("nobody").ssl_mode(SslMode::Disable);
        let attempt = config.connect_raw(Broken(Some(self)), NoTls).await;
        attempt.err().expect("nobody answers on a broken stream")
    }
}

// === impl Broken ===

impl Broken {
    fn breaks<T>(&mut self) -> Poll<io::Result<T>> {
        let reason = self.0.take().map_or_else(|| io::ErrorKind::BrokenPipe.into(), io::Error::other);
        Poll::Ready(Err(reason))
    }
}

impl AsyncRead for Broken {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.breaks()
    }
}

impl AsyncWrite for Broken {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.breaks()
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.breaks()
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_of_the_driver_tells_what_every_host_answered() {
        let silent = ("a:5432".to_owned(), Refusal::Silent(Duration::from_secs(2)));
        let bad = ("b:5432".to_owned(), Refusal::Unsafe("synchronous_commit is off".to_owned()));
        let error = ConnectError { tries: vec![silent, bad] }.into_driver_error().await;
        let sentence = chain(&error);
        assert!(sentence.ends_with("a:5432: no answer within 2s; b:5432: synchronous_commit is off"), "{sentence}");
    }
}
