//! The HTTP client that the acquirer is called with, in plaintext or over TLS.

use std::{error::Error, path::PathBuf, time::Duration};

use bytes::Bytes;
use credentials::{Authorities, ClientConfig, ClientEnd, CredentialsError, Distrust, Proof, Watched};
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{Client as Pooled, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::{BoxError, ServiceBuilder, util::BoxCloneSyncService};

/// Keeps connections open, and uses them again.
pub(super) type Client = Pooled<Connector, Full<Bytes>>;

type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// The connections, with the authorities that are believed now: when those change, others are made.
pub(super) fn open(ca: Option<PathBuf>, connect_timeout: Duration) -> Result<Watched<Client>, CredentialsError> {
    let proof = Proof::Host(ca.map_or(Authorities::Public, Authorities::File));
    let end = ClientEnd { proof, identity: None, protocols: Vec::new() };
    Watched::open("the authority of the acquirer's certificate", end.files(), move |contents| {
        Ok(client(end.configure(contents)?, connect_timeout))
    })
}

fn client(tls: ClientConfig, connect_timeout: Duration) -> Client {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(15)));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(Duration::from_secs(30)));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    // The handshake is part of connecting.
    let connector = BoxCloneSyncService::new(ServiceBuilder::new().timeout(connect_timeout).service(https));
    Pooled::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)
}

/// An error with its causes, and what to do where that is known.
pub(super) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = match Distrust::of(error) {
        Some(Distrust::Authority) => "its certificate is of no authority that is believed here, see --acquirer-ca: ",
        Some(Distrust::Host) => "its certificate is not for the host of --acquirer-url: ",
        Some(Distrust::Other) => "its certificate cannot be believed: ",
        None => "",
    }
    .to_owned();
    text.push_str(&error.to_string());
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
