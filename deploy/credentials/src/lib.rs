//! Credentials that live in files: read again when they change; certificates for both ends of TLS.
//!
//! Certificates, keys, tokens and API keys are rotated while a process runs. [`Watched`] looks at its files once a second; what is
//! new and good is used from then on, what is new and broken is an error in the log and changes nothing. [`ServerTls`] and
//! [`ClientTls`] are the two ends of a connection between our services, built on it, and [`ClientEnd`] is an end that calls anybody else:
//! a new certificate is shown from the next handshake on, and connections that are open live on.

mod client;
mod client_end;
mod distrust;
mod entries;
mod names;
mod pem;
mod regular;
mod server;
mod unnamed;
mod watched;

pub use client::{ClientFiles, ClientTls};
pub use client_end::{Authorities, ClientEnd, Proof};
pub use distrust::Distrust;
pub use entries::entries;
pub use names::PeerNames;
pub use regular::read;
pub use server::{ServerFiles, ServerTls};
pub use watched::{CredentialsError, Watched};

pub use tokio_rustls::{client::TlsStream as ClientStream, rustls::ClientConfig, server::TlsStream as ServerStream};

use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// Said aloud everywhere, so that no other crate can choose another one for the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
