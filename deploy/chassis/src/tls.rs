//! Certificates, for who serves and who calls.

pub use credentials::{ClientFiles, ClientTls, CredentialsError, PeerNames, ServerFiles, ServerTls, Watched};

use std::path::PathBuf;

/// TLS flags that contradict each other, or files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One flag without the other.
    #[error("{given} is given without {missing}: give both, or neither")]
    Half {
        /// What was given.
        given: &'static str,
        /// What it needs.
        missing: &'static str,
    },
    /// A file is no good.
    #[error(transparent)]
    Files(#[from] CredentialsError),
}

/// What `--tls-cert`, `--tls-key` and `--tls-client-ca` say; none: plaintext.
pub fn server(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> Result<Option<ServerTls>, TlsError> {
    match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => Ok(Some(ServerTls::open(ServerFiles { cert, key, client_ca })?)),
        (None, None, None) => Ok(None),
        (Some(_), None, _) => Err(TlsError::Half { given: "--tls-cert", missing: "--tls-key" }),
        (None, Some(_), _) => Err(TlsError::Half { given: "--tls-key", missing: "--tls-cert" }),
        (None, None, Some(_)) => Err(TlsError::Half { given: "--tls-client-ca", missing: "--tls-cert and --tls-key" }),
    }
}

/// What `--upstream-tls-ca`, `--upstream-tls-cert` and `--upstream-tls-key` say; none: only plaintext endpoints can be called.
pub fn client(ca: Option<PathBuf>, cert: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<ClientTls>, TlsError> {
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(TlsError::Half { given: "--upstream-tls-cert", missing: "--upstream-tls-key" });
        }
        (None, Some(_)) => {
            return Err(TlsError::Half { given: "--upstream-tls-key", missing: "--upstream-tls-cert" });
        }
    };
    match (ca, identity) {
        (Some(ca), identity) => Ok(Some(ClientTls::open(ClientFiles { ca, identity })?)),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(TlsError::Half { given: "--upstream-tls-cert", missing: "--upstream-tls-ca" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_configuration_is_refused_with_both_flags() {
        let path = || Some(PathBuf::from("/nowhere/file.pem"));
        let table = [
            (server(path(), None, None).err(), "--tls-cert is given without --tls-key"),
            (server(None, path(), path()).err(), "--tls-key is given without --tls-cert"),
            (server(None, None, path()).err(), "--tls-client-ca is given without --tls-cert and --tls-key"),
            (server(path(), path(), None).err(), "cannot read the TLS certificate and key in /nowhere/file.pem"),
            (client(path(), path(), None).err(), "--upstream-tls-cert is given without --upstream-tls-key"),
            (client(path(), None, path()).err(), "--upstream-tls-key is given without --upstream-tls-cert"),
            (client(None, path(), path()).err(), "--upstream-tls-cert is given without --upstream-tls-ca"),
        ];
        for (error, expected) in table {
            let error = error.unwrap().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(server(None, None, None).unwrap().is_none() && client(None, None, None).unwrap().is_none());
    }
}
