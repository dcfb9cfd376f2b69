//! Why a server was not believed, found among the causes of an error.

use std::{error::Error, io};
use tokio_rustls::rustls::{self, CertificateError};

/// What is wrong with a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// No authority that is believed has signed it.
    Authority,
    /// It is for another host.
    Host,
    /// Something else: it has expired, or is malformed.
    Other,
}

// === impl Distrust ===

impl Distrust {
    /// What is held against the server, if that is why a connection failed.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            let rustls::Error::InvalidCertificate(why) = error else { return None };
            return Some(Self::new(why));
        }
        // An I/O error shows the causes of what it carries, not what it carries.
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        carried.and_then(|carried| Self::of(carried)).or_else(|| error.source().and_then(Self::of))
    }

    fn new(why: &CertificateError) -> Self {
        match why {
            // A bad signature is of somebody who has an authority's name and not its key: a successor, or an impostor.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Authority,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::Host,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_however_deep_it_lies() {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(Distrust::of(&unknown()), Some(Distrust::Authority));
        assert_eq!(Distrust::of(&io::Error::other(io::Error::other(unknown()))), Some(Distrust::Authority));
        let host = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        assert_eq!(Distrust::of(&io::Error::other(host)), Some(Distrust::Host));
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(Distrust::of(&expired), Some(Distrust::Other));
        assert_eq!(Distrust::of(&io::Error::other(rustls::Error::DecryptError)), None);
        assert_eq!(Distrust::of(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
