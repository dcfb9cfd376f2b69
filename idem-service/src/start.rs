//! Why the service does not start.

use std::io;
use std::net::SocketAddr;

use chassis::listen::{BindError, ExposureError};
use chassis::service_auth::ServiceAuthError;
use chassis::tls::TlsError;
use database::OpenError;
use tokio::net::TcpListener;

use crate::sealing::SealingError;

/// Why the service does not start: one sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The service tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] ServiceAuthError),
    /// The encryption keys cannot be used.
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// The TLS flags, or their files, cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Strangers could reach the service.
    #[error(transparent)]
    Exposure(#[from] ExposureError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A bound port does not say where it is.
    #[error("a listening socket has no address")]
    Address(#[source] io::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Where a listener was bound, which port 0 leaves open.
pub(crate) fn address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(StartError::Address)
}
