//! Authorities and what they sign, in files as an operator has them.

use std::{collections::BTreeMap, fs};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};

pub struct Certificates {
    directory: tempfile::TempDir,
    authorities: BTreeMap<&'static str, CertifiedIssuer<'static, KeyPair>>,
}

impl Certificates {
    pub fn new(authorities: &[&'static str]) -> Self {
        let authority = |name: &&'static str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, *name);
            (*name, CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        };
        let authorities = authorities.iter().map(authority).collect();
        Self { directory: tempfile::tempdir().unwrap(), authorities }
    }

    pub fn path(&self, file: &str) -> String {
        self.directory.path().join(file).display().to_string()
    }

    pub fn write(&self, file: &str, content: &str) {
        fs::write(self.path(file), content).unwrap();
    }

    /// An authority itself.
    pub fn pem(&self, authority: &str) -> String {
        self.authorities[authority].pem()
    }

    /// `file.pem` and `file.key`: a certificate of `authority` for a DNS name or an address. Written over what was there, one after the other.
    pub fn sign(&self, authority: &str, file: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authorities[authority]).unwrap();
        self.write(&format!("{file}.key"), &key.serialize_pem());
        self.write(&format!("{file}.pem"), &certificate.pem());
    }

    /// `file.pem`: these authorities.
    pub fn believe(&self, file: &str, authorities: &[&str]) {
        let all: String = authorities.iter().map(|authority| self.pem(authority)).collect();
        self.write(&format!("{file}.pem"), &all);
    }
}
