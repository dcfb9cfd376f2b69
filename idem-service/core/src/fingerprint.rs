//! What was asked, as one number: method, concrete path, query and canonical JSON body.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::json::{self, JsonError};

/// Names the algorithm inside the digest, so that a later version can never collide with this one.
const VERSION: &[u8] = b"idem-fingerprint-v1";

/// SHA-256 of what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A fingerprint of another length than 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the fingerprint must be 32 bytes (a SHA-256), not {0}")]
pub struct FingerprintError(pub usize);

impl Fingerprint {
    /// The fingerprint of a request with a JSON body; `path` and `query` as they were sent, an empty body is `{}`.
    pub fn of_request(method: &str, path: &str, query: &str, body: &[u8]) -> Result<Self, JsonError> {
        let body = json::canonical(body)?;
        let mut digest = Sha256::new();
        // Each part goes in behind its length, so that no two lists of parts give the same bytes.
        for part in [VERSION, method.as_bytes(), path.as_bytes(), query.as_bytes(), &body] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Ok(Self(digest.finalize().into()))
    }

    /// A fingerprint that a caller computed.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, FingerprintError> {
        bytes.try_into().map(Self).map_err(|_| FingerprintError(bytes.len()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str, query: &str, body: &str) -> Fingerprint {
        Fingerprint::of_request(method, path, query, body.as_bytes()).unwrap()
    }

    #[test]
    fn the_same_request_has_the_same_fingerprint() {
        assert_eq!(
            of("POST", "/v1/orders", "", r#"{"a":1,"b":2}"#),
            of("POST", "/v1/orders", "", r#"{"b":2.0,"a":1e0}"#)
        );
        assert_eq!(of("POST", "/v1/orders/1/cancel", "", ""), of("POST", "/v1/orders/1/cancel", "", "{}"));
    }

    #[test]
    fn every_part_counts_and_parts_do_not_run_together() {
        let all = [
            of("POST", "/v1/orders", "", "{}"),
            of("PUT", "/v1/orders", "", "{}"),
            of("POST", "/v1/order", "s", "{}"),
            of("POST", "/v1/orders", "a=1", "{}"),
            of("POST", "/v1/orders", "", "[]"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }

    // Stored fingerprints outlive a deployment: this value may never change within version 1.
    #[test]
    fn version_one_is_fixed() {
        let fingerprint = of("POST", "/v1/orders", "a=b", r#"{"venueId":"demo","items":[{"quantity":2.0}]}"#);
        let hex: String = fingerprint.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "af2a37ca147ed9144f67f91537bfc49334fdbca1e637fb8129d0552328472e7b");
    }
}
