//! The end that calls.

use crate::{Authorities, ClientEnd, CredentialsError, Proof, Watched};
use std::{io, path::PathBuf};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig,
        pki_types::{InvalidDnsNameError, ServerName},
    },
};

/// Where a client finds whom it believes and what it shows.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// PEM: who signs the certificates of servers.
    pub ca: PathBuf,
    /// PEM: the client's certificate, then its chain, and its private key; none: it shows none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Makes TLS connections for HTTP/2. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Watched<ClientConfig>,
}

// === impl ClientTls ===

impl ClientTls {
    /// Reads the files, now and whenever they change.
    pub fn open(files: ClientFiles) -> Result<Self, CredentialsError> {
        let proof = Proof::Host(Authorities::File(files.ca));
        let end = ClientEnd { proof, identity: files.identity, protocols: vec![b"h2".to_vec()] };
        Ok(Self { config: end.open("the TLS authority, certificate and key for calls")? })
    }

    /// The name under which a host must prove itself: a DNS name, or an address (in brackets or not).
    pub fn server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
        ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
    }

    /// Looks at the files now, instead of within a second.
    pub fn look(&self) {
        self.config.look();
    }

    /// The handshake with a server that must prove to be `name`. How long it may take is for the caller to say.
    pub async fn connect(&self, name: ServerName<'static>, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(self.config.current());
        let stream = connector.connect(name, tcp).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("the server does not speak HTTP/2 over TLS"));
        }
        Ok(stream)
    }
}
