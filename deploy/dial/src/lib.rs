//! Reaches a gRPC service of several replicas.
//!
//! An HTTP/2 connection stays with the replica that took it, so who calls has to spread its calls by itself. A [`Channel`] resolves the
//! service's name to all of its addresses again and again (a headless service in Kubernetes has one for each pod), keeps connections to
//! each, and sends a call where the fewest are waiting. What does not answer is left out:
//!
//! - a connection that cannot be made, or breaks, or stays silent while a caller gives up on it, takes no more calls until a probe (a gRPC
//!   health check on a fresh connection) is answered. Calls never try out whether a replica is back;
//! - one on which calls wait and nothing has been heard for a second, or whose last answer was UNAVAILABLE, is used when there is no other;
//! - a call that has not left yet when its connection goes away is made on another one. One that has left is never repeated here: whether
//!   that is safe is for the caller to say.
//!
//! With nobody to call, calls wait for the attempts at connecting that are under way, and fail with UNAVAILABLE when all have failed. A
//! channel may be made before its service exists.

mod call;
mod connect;
mod keep;
mod line;
mod pool;
mod resolve;

pub use credentials::{ClientFiles, ClientTls, CredentialsError};
pub use resolve::{Dns, Resolve};

use http::uri::{Authority, Scheme, Uri};
use pool::Pool;
use std::{sync::Arc, time::Duration};

/// How a service is reached.
#[derive(Clone)]
pub struct Settings {
    /// Who proves to be the service, and what is shown to it; without, only `http://` can be called.
    pub tls: Option<ClientTls>,
    /// Connections to each replica; at least one.
    pub connections: usize,
    /// How long one may take to be made, the answer to its probe included.
    pub connect_timeout: Duration,
    /// How often the peer is asked whether it is there, and how long it may take to say so.
    pub ping: (Duration, Duration),
    /// How many bytes of one answer, and of all on one connection, may be under way.
    pub windows: (u32, u32),
    /// Finds the addresses.
    pub resolver: Arc<dyn Resolve>,
}

/// The connections to every replica of a service: cheap to clone, every clone uses the same ones. A tower service for tonic's clients.
#[derive(Clone)]
pub struct Channel {
    pool: Arc<Pool>,
}

/// A text that is no service's place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not of the form.
    #[error("it is not an endpoint such as http://host:port")]
    Form,
    /// Encrypted, and nobody is believed.
    #[error("an https:// endpoint needs to be told whose certificates to believe")]
    NoAuthority,
    /// Plaintext, where certificates were given.
    #[error("an http:// endpoint is not encrypted: with TLS files it must be https://")]
    Plaintext,
    /// No name that a certificate could have.
    #[error("its host is no name or address that a certificate could show")]
    Host,
}

/// Where a service is, and how to speak to it.
#[derive(Clone)]
pub(crate) struct Place {
    scheme: Scheme,
    authority: Authority,
    host: String,
    port: u16,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            tls: None,
            connections: 1,
            connect_timeout: Duration::from_secs(1),
            ping: (Duration::from_secs(5), Duration::from_secs(3)),
            windows: (2 * 1024 * 1024, 5 * 1024 * 1024),
            resolver: Arc::new(Dns),
        }
    }
}

// === impl Channel ===

impl Channel {
    /// A channel to `http://host:port` or `https://host:port`. Nothing is connected before the first call, which must be made on a tokio
    /// runtime.
    pub fn new(endpoint: &str, settings: Settings) -> Result<Self, EndpointError> {
        let place = Place::parse(endpoint)?;
        match (place.scheme == Scheme::HTTPS, &settings.tls) {
            (true, None) => return Err(EndpointError::NoAuthority),
            (false, Some(_)) => return Err(EndpointError::Plaintext),
            (true, Some(_)) => drop(ClientTls::server_name(&place.host).map_err(|_| EndpointError::Host)?),
            (false, None) => {}
        }
        Ok(Self { pool: Arc::new(Pool::new(place, settings)) })
    }
}

// === impl Place ===

impl Place {
    fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        let parts = endpoint.parse::<Uri>().map_err(|_| EndpointError::Form)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else { return Err(EndpointError::Form) };
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(EndpointError::Form),
        };
        let host = authority.host().to_owned();
        if host.is_empty() {
            return Err(EndpointError::Form);
        }
        Ok(Self { port: authority.port_u16().unwrap_or(default_port), scheme, authority, host })
    }

    /// The same request, with everything that HTTP/2 says about where it goes.
    fn address(&self, uri: &Uri) -> Uri {
        let path = uri.path_and_query().cloned();
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let uri = uri.path_and_query(path.map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned()));
        uri.build().expect("scheme, authority and path make a URI")
    }
}
