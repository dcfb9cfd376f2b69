//! The part of a `postgres://` address that is about TLS, with the words and the meaning of libpq.

use std::path::PathBuf;

use credentials::{Authorities, ClientEnd, Proof};
use percent_encoding::percent_decode_str;
use tokio_postgres::config::SslMode;

/// How much a connection is protected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ssl {
    pub(super) mode: SslMode,
    /// What this end wants proved; none: it does not speak TLS.
    pub(super) end: Option<ClientEnd>,
}

/// Why the part about TLS cannot be used. No value is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SslError {
    /// A word that is no mode.
    #[error("sslmode is one of disable, prefer, require, verify-ca and verify-full")]
    Mode,
    /// Files for a connection that would not use them.
    #[error(
        "sslrootcert, sslcert and sslkey need an sslmode: without one nothing is encrypted; say sslmode=verify-full"
    )]
    NoMode,
    /// Certificate without key, or key without certificate.
    #[error("sslcert and sslkey belong together: give both files, or neither")]
    Half,
    /// Everybody can have a certificate of a public authority.
    #[error("sslrootcert=system proves nothing without the host's name: say sslmode=verify-full")]
    System,
    /// A key without a file.
    #[error("sslrootcert, sslcert and sslkey need the path of a file in UTF-8")]
    File,
}

/// The parameters as they stand in the address.
#[derive(Default)]
struct Said {
    mode: Option<String>,
    root: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

/// The address without what only we understand, and what that says.
pub(super) fn split(address: &str) -> Result<(String, Ssl), SslError> {
    let Some(query) = query_start(address) else {
        return Ok((address.to_owned(), Said::default().meaning()?));
    };
    let (rest, query) = (&address[..query], &address[query + 1..]);
    let mut said = Said::default();
    let mut others = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match &*percent_decode_str(key).decode_utf8_lossy() {
            "sslmode" => &mut said.mode,
            "sslrootcert" => &mut said.root,
            "sslcert" => &mut said.cert,
            "sslkey" => &mut said.key,
            _ => {
                others.push(pair);
                continue;
            }
        };
        *place = Some(percent_decode_str(value).decode_utf8().map_err(|_| SslError::File)?.into_owned());
    }
    let rest = if others.is_empty() { rest.to_owned() } else { format!("{rest}?{}", others.join("&")) };
    Ok((rest, said.meaning()?))
}

/// Where the parameters begin. A password may hold a question mark; like the driver, it ends at the first `@`.
fn query_start(address: &str) -> Option<usize> {
    let hosts = address.find('@').unwrap_or(0);
    Some(hosts + address[hosts..].find('?')?)
}

// === impl Said ===

impl Said {
    fn meaning(self) -> Result<Ssl, SslError> {
        let has_files = self.root.is_some() || self.cert.is_some() || self.key.is_some();
        let is_system = self.root.as_deref() == Some("system");
        let mode = match self.mode.as_deref() {
            None if is_system => "verify-full",
            None if has_files => return Err(SslError::NoMode),
            None => "disable",
            Some(mode) => mode,
        };
        let authorities = match self.root.filter(|_| !is_system) {
            Some(file) => Some(Authorities::File(path(file)?)),
            None => is_system.then_some(Authorities::Public),
        };
        let named = authorities.clone().unwrap_or(Authorities::Public);
        let (ssl_mode, proof) = match mode {
            "disable" => return Ok(Ssl { mode: SslMode::Disable, end: None }),
            "prefer" | "require" | "verify-ca" if is_system => return Err(SslError::System),
            "prefer" => (SslMode::Prefer, Proof::Nothing),
            "require" => (SslMode::Require, authorities.map_or(Proof::Nothing, Proof::Authority)),
            "verify-ca" => (SslMode::Require, Proof::Authority(named)),
            "verify-full" => (SslMode::Require, Proof::Host(named)),
            _ => return Err(SslError::Mode),
        };
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((path(cert)?, path(key)?)),
            (None, None) => None,
            _ => return Err(SslError::Half),
        };
        Ok(Ssl { mode: ssl_mode, end: Some(ClientEnd { proof, identity, protocols: Vec::new() }) })
    }
}

fn path(text: String) -> Result<PathBuf, SslError> {
    if text.is_empty() { Err(SslError::File) } else { Ok(PathBuf::from(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(query: &str) -> Result<(SslMode, Option<Proof>), SslError> {
        split(&format!("postgres://u:s@db/x?{query}")).map(|(_, ssl)| (ssl.mode, ssl.end.map(|end| end.proof)))
    }

    #[test]
    fn the_modes_mean_what_they_mean_to_libpq() {
        let file = || Authorities::File("/ca.pem".into());
        for (query, mode, proof) in [
            ("", SslMode::Disable, None),
            ("sslmode=disable&sslrootcert=/ca.pem", SslMode::Disable, None),
            ("sslmode=prefer", SslMode::Prefer, Some(Proof::Nothing)),
            ("sslmode=require", SslMode::Require, Some(Proof::Nothing)),
            ("sslmode=require&sslrootcert=%2Fca.pem", SslMode::Require, Some(Proof::Authority(file()))),
            ("sslmode=verify-ca&sslrootcert=/ca.pem", SslMode::Require, Some(Proof::Authority(file()))),
            ("sslmode=verify-ca", SslMode::Require, Some(Proof::Authority(Authorities::Public))),
            ("sslmode=verify-full&sslrootcert=/ca.pem", SslMode::Require, Some(Proof::Host(file()))),
            ("sslmode=verify-full", SslMode::Require, Some(Proof::Host(Authorities::Public))),
            ("sslmode=verify-full&sslrootcert=system", SslMode::Require, Some(Proof::Host(Authorities::Public))),
            ("sslrootcert=system", SslMode::Require, Some(Proof::Host(Authorities::Public))),
        ] {
            assert_eq!(meaning(query), Ok((mode, proof)), "{query}");
        }
    }

    #[test]
    fn what_would_protect_less_than_it_seems_is_refused() {
        for (query, error) in [
            ("sslmode=allow", SslError::Mode),
            ("sslmode=", SslError::Mode),
            ("sslmode", SslError::Mode),
            ("sslrootcert=/ca.pem", SslError::NoMode),
            ("sslcert=/a&sslkey=/b", SslError::NoMode),
            ("sslmode=require&sslcert=/a", SslError::Half),
            ("sslmode=require&sslkey=/a", SslError::Half),
            ("sslmode=require&sslrootcert=system", SslError::System),
            ("sslmode=verify-full&sslrootcert=", SslError::File),
            ("sslmode=verify-full&sslrootcert=%ff", SslError::File),
        ] {
            assert_eq!(meaning(query), Err(error), "{query}");
        }
    }

    #[test]
    fn the_rest_of_the_address_is_left_as_it_is() {
        for (address, left) in [
            ("postgres://db/x", "postgres://db/x"),
            ("postgres://db/x?sslmode=require", "postgres://db/x"),
            ("postgres://u:a?sslmode=require@db/x", "postgres://u:a?sslmode=require@db/x"),
            (
                "postgres://u:p%26@a,b/x?connect_timeout=3&sslmode=prefer&options=-c%20a%3Db",
                "postgres://u:p%26@a,b/x?connect_timeout=3&options=-c%20a%3Db",
            ),
        ] {
            assert_eq!(split(address).map(|(left, _)| left), Ok(left.to_owned()), "{address}");
        }
    }
}
