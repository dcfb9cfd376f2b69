//! Whom a certificate names.

use std::fmt;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The names of the caller's certificate, which was verified: DNS names and URIs (SPIFFE ids among them) of its subject alternative names.
/// A common name is none: RFC 9525 has retired it.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerNames {
    names: Vec<String>,
}

// === impl PeerNames ===

impl PeerNames {
    /// Names given in code.
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// URIs first: who has a SPIFFE id is known by it.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Self::new(Vec::new()) };
        let names = certificate.valid_uri_names().chain(certificate.valid_dns_names()).map(str::to_owned);
        Self::new(names.collect())
    }

    /// Is this one of them? Exactly; DNS names in any case.
    pub fn contains(&self, name: &str) -> bool {
        let is_uri = name.contains("://");
        self.names.iter().any(|own| if is_uri { own == name } else { own.eq_ignore_ascii_case(name) })
    }

    /// What to call its bearer in a log.
    pub fn first(&self) -> &str {
        self.names.first().map_or("a certificate without a name", String::as_str)
    }
}

impl fmt::Debug for PeerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}
