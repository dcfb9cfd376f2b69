//! Authorities and certificates, in files.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Who signs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For DNS names, addresses and URIs.
    pub fn sign(&self, names: &[&str]) -> Identity {
        self.sign_with(names, |_| {})
    }

    /// Valid until the beginning of 2020.
    pub fn sign_expired(&self, names: &[&str]) -> Identity {
        self.sign_with(names, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1))
    }

    fn sign_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let (uris, names): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(names.into_iter().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        params.subject_alt_names.extend(uris.into_iter().map(|uri| SanType::URI(uri.try_into().unwrap())));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { cert, key: key.serialize_pem() }
    }
}

impl Identity {
    /// Writes both, over what was there.
    pub fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
        fs::write(&key, &self.key).unwrap();
        fs::write(&cert, &self.cert).unwrap();
        (cert, key)
    }
}
