//! What PEM files hold. Complaints name the file's purpose, never its content.

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A chain, the certificate of this side first.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|_| "a certificate in it is no PEM".to_owned())?;
    if read.is_empty() { Err("there is no certificate in PEM form".to_owned()) } else { Ok(read) }
}

pub(crate) fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "there is no private key in PEM form".to_owned())
}

/// Those who are believed when they sign a certificate.
pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("a certificate authority cannot be used ({error})"))?;
    }
    Ok(roots)
}
