//! The signature of a webhook: who sent these bytes, and when.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header that carries the signature.
pub const HEADER: &str = "acquirer-signature";

/// Signs a webhook's body: `t=<unix>,v1=<hex HMAC-SHA-256 of "t.body">`.
///
/// The time is part of what is signed, so an old delivery cannot be passed off as a new one.
pub fn sign(secret: &str, at: SystemTime, body: &[u8]) -> String {
    let t = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(format!("{t}.").as_bytes());
    mac.update(body);
    format!("t={t},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The value is from `printf '1700000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_demo`.
    #[test]
    fn signature_is_what_another_implementation_computes() {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let expected = "t=1700000000,v1=23325a61b4f7230b9b393ae50047056e354118190d0964e1414088ead50b4ce5";
        assert_eq!(sign("whsec_demo", at, br#"{"id":"evt_1"}"#), expected);
    }
}
