//! The end that is called.

use crate::{CredentialsError, PeerNames, Watched, pem, provider};
use std::{io, path::PathBuf, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        server::{NoServerSessionStorage, WebPkiClientVerifier},
    },
    server::TlsStream,
};

/// Where a server finds what it shows and whom it believes.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// PEM: the server's certificate, then its chain.
    pub cert: PathBuf,
    /// PEM: the private key.
    pub key: PathBuf,
    /// PEM: who signs the certificates of callers; none: callers are not asked for any.
    pub client_ca: Option<PathBuf>,
}

/// Takes TLS connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Watched<ServerConfig>,
    asks_for_certificates: bool,
}

// === impl ServerTls ===

impl ServerTls {
    /// Reads the files, now and whenever they change.
    pub fn open(files: ServerFiles) -> Result<Self, CredentialsError> {
        let asks_for_certificates = files.client_ca.is_some();
        let paths = [files.cert, files.key].into_iter().chain(files.client_ca).collect();
        let config = Watched::open("the TLS certificate and key", paths, configure)?;
        Ok(Self { config, asks_for_certificates })
    }

    /// Whether callers prove with a certificate who they are.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    /// Looks at the files now, instead of within a second.
    pub fn look(&self) {
        self.config.look();
    }

    /// The handshake. A caller's certificate that cannot be verified (another authority, expired) ends it; a caller without one comes in
    /// nameless, for who serves it to judge. How long it may take is for the caller of this function to say.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<(TlsStream<TcpStream>, Option<PeerNames>)> {
        let acceptor = TlsAcceptor::from(self.config.current());
        let stream = acceptor.accept(tcp).await?;
        let names = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(PeerNames::of);
        Ok((stream, names))
    }
}

fn configure(contents: &[Vec<u8>]) -> Result<ServerConfig, String> {
    let [cert, key, client_ca @ ..] = contents else { return Err("certificate and key belong together".to_owned()) };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_ca.first() {
        Some(ca) => {
            let roots = Arc::new(pem::roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated();
            builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(pem::certificates(cert)?, pem::key(key)?)
        .map_err(|error| format!("certificate and key cannot be used together ({error})"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if !client_ca.is_empty() {
        // A resumed session would bring back a certificate without judging it again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
