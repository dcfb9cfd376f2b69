//! What an end that calls wants proved and what it shows, whatever is spoken over the connection.

use crate::{CredentialsError, Watched, pem, provider, unnamed::Unnamed};
use std::{path::PathBuf, sync::Arc};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What a server must prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing: what is said is hidden from whoever listens, not from whoever answers.
    Nothing,
    /// That one of these authorities has signed its certificate, whatever host it names.
    Authority(Authorities),
    /// That one of these authorities has signed its certificate for the host that was called.
    Host(Authorities),
}

/// Who is believed to sign certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Those whom browsers believe, as Mozilla lists them. They are part of the program, since an image need not have any files of them.
    Public,
    /// Those of a PEM file.
    File(PathBuf),
}

/// An end that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEnd {
    /// What the other end must prove.
    pub proof: Proof,
    /// PEM: this end's certificate, then its chain, and its private key; none: it shows none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The protocols it offers; none: it says nothing about them.
    pub protocols: Vec<Vec<u8>>,
}

// === impl ClientEnd ===

impl ClientEnd {
    /// The configuration, read now and whenever the files change. `what` names them in errors: "the TLS files for calls".
    pub fn open(self, what: &'static str) -> Result<Watched<ClientConfig>, CredentialsError> {
        Watched::open(what, self.files(), move |contents| self.configure(contents))
    }

    /// The files that say it.
    pub fn files(&self) -> Vec<PathBuf> {
        let identity = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        self.authority_file().into_iter().chain(identity).cloned().collect()
    }

    /// The configuration out of what stands in [`files`](Self::files).
    pub fn configure(&self, contents: &[Vec<u8>]) -> Result<ClientConfig, String> {
        let (authority, identity) = contents.split_at(usize::from(self.authority_file().is_some()));
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let unnamed = |roots| Arc::new(Unnamed::new(roots, provider()));
        let builder = match &self.proof {
            Proof::Nothing => builder.dangerous().with_custom_certificate_verifier(unnamed(None)),
            Proof::Authority(_) => {
                builder.dangerous().with_custom_certificate_verifier(unnamed(Some(roots(authority)?)))
            }
            Proof::Host(_) => builder.with_root_certificates(roots(authority)?),
        };
        let mut config = match identity {
            [cert, key] => builder
                .with_client_auth_cert(pem::certificates(cert)?, pem::key(key)?)
                .map_err(|error| format!("certificate and key cannot be used together ({error})"))?,
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(config)
    }

    fn authority_file(&self) -> Option<&PathBuf> {
        match &self.proof {
            Proof::Authority(Authorities::File(file)) | Proof::Host(Authorities::File(file)) => Some(file),
            Proof::Nothing | Proof::Authority(Authorities::Public) | Proof::Host(Authorities::Public) => None,
        }
    }
}

/// Those of the file, or the public ones where there is none.
fn roots(authority: &[Vec<u8>]) -> Result<RootCertStore, String> {
    match authority {
        [pem, ..] => pem::roots(pem),
        [] => Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(proof: Proof) -> ClientEnd {
        ClientEnd { proof, identity: None, protocols: Vec::new() }
    }

    #[test]
    fn the_public_authorities_are_part_of_the_program() {
        for proof in [Proof::Authority(Authorities::Public), Proof::Host(Authorities::Public)] {
            assert!(end(proof.clone()).files().is_empty(), "{proof:?}");
            assert!(end(proof.clone()).open("the files").is_ok(), "{proof:?}");
        }
        assert!(roots(&[]).expect("roots").len() > 50);
    }

    #[test]
    fn a_file_that_is_no_authority_is_refused_and_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "nonsense").unwrap();
        let error = end(Proof::Host(Authorities::File(file.path().to_owned()))).open("the authority").unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.starts_with("the authority in /") && sentence.contains("no certificate"), "{sentence}");
    }
}
