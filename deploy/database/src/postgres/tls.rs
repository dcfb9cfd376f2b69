//! TLS to Postgres: how it is spoken, and what to tell the operator when it is not.

use credentials::{ClientConfig, Distrust, Watched};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::PostgresUrl;
use crate::error::chain;

/// How to speak TLS, if at all. The files are read again when they change; the next connection goes by them.
pub(super) struct Tls(Option<Watched<ClientConfig>>);

// === impl Tls ===

impl Tls {
    pub(super) fn open(url: &PostgresUrl) -> Result<Self, String> {
        let Some(mut end) = url.tls().cloned() else { return Ok(Self(None)) };
        if url.get_ssl_negotiation() == SslNegotiation::Direct {
            // Without a word before it a server must be told what is spoken; otherwise it need not even know that one can tell it.
            end.protocols = vec![b"postgresql".to_vec()];
        }
        let config = end.open("the TLS files of the store's address");
        config.map(|config| Self(Some(config))).map_err(|error| chain(&error))
    }

    pub(super) fn connector(&self) -> Option<MakeRustlsConnect> {
        self.0.as_ref().map(|config| MakeRustlsConnect::new(ClientConfig::clone(&config.current())))
    }
}

/// What is wrong with the server, or with what it was asked for; none where TLS is not the reason.
pub(super) fn complaint(error: &tokio_postgres::Error) -> Option<String> {
    let sentence = chain(error);
    if sentence.contains("server does not support TLS") {
        let offers_none = "the server offers no TLS: turn its ssl on, or say sslmode=disable where nobody can listen";
        return Some(offers_none.to_owned());
    }
    let complaint = match Distrust::of(error)? {
        Distrust::Authority => {
            "the server's certificate is of no authority that is believed here: give its own as sslrootcert=FILE"
        }
        Distrust::Host => "the server's certificate is not for the host in the address",
        Distrust::Other => "the server's certificate cannot be believed",
    };
    Some(format!("{complaint} ({sentence})"))
}
