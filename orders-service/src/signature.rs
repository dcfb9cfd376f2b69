//! The signature on an acquirer's webhook: `t=<unix>,v1=<hex HMAC-SHA-256 of "t.body">`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How far the signature's time may be from ours: long enough for every redelivery, which is signed anew, and for clocks that differ.
const AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// Why a webhook is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The header or the body cannot be read.
    Malformed,
    /// Somebody else signed it, or it was changed.
    BadSignature,
    /// Signed more than five minutes ago, or in the future.
    TooOld,
}

/// Checks that `body` was signed with `secret` within five minutes of `now`.
pub fn verify(secret: &[u8], header: &str, body: &[u8], now: SystemTime) -> Result<(), Rejection> {
    #[cfg(feature = "sabotage")]
    if crate::sabotage::breaks("signature") {
        return Ok(());
    }
    let signature = Signature::parse(header).ok_or(Rejection::Malformed)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    // The text as it came: `t=01` is signed as `01`.
    mac.update(signature.time_text.as_bytes());
    mac.update(b".");
    mac.update(body);
    // `verify_slice` compares in constant time. Every v1 is tried: while a secret is being changed there are two.
    if !signature.macs.iter().any(|candidate| mac.clone().verify_slice(candidate).is_ok()) {
        return Err(Rejection::BadSignature);
    }
    let signed_at = UNIX_EPOCH.checked_add(Duration::from_secs(signature.time)).ok_or(Rejection::TooOld)?;
    let distance = match now.duration_since(signed_at) {
        Ok(age) => age,
        Err(ahead) => ahead.duration(),
    };
    if distance > AGE_MAX { Err(Rejection::TooOld) } else { Ok(()) }
}

struct Signature<'a> {
    time_text: &'a str,
    time: u64,
    macs: Vec<Vec<u8>>,
}

impl<'a> Signature<'a> {
    fn parse(header: &'a str) -> Option<Self> {
        let mut time_text = None;
        let mut macs = Vec::new();
        for part in header.split(',') {
            match part.trim().split_once('=')? {
                ("t", text) if time_text.is_none() => time_text = Some(text),
                ("t", _) => return None,
                ("v1", text) => macs.push(hex::decode(text).ok()?),
                // A later scheme beside this one.
                _ => {}
            }
        }
        let time_text = time_text?;
        let is_number = !time_text.is_empty() && time_text.bytes().all(|byte| byte.is_ascii_digit());
        let time = is_number.then(|| time_text.parse().ok())??;
        (!macs.is_empty()).then_some(Self { time_text, time, macs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"whsec_demo";
    const BODY: &[u8] = br#"{"id":"evt_1"}"#;
    /// From `printf '1700000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_demo`.
    const MAC: &str = "23325a61b4f7230b9b393ae50047056e354118190d0964e1414088ead50b4ce5";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn check(header: &str, now: u64) -> Result<(), Rejection> {
        verify(SECRET, header, BODY, at(now))
    }

    #[test]
    fn a_signature_made_elsewhere_is_accepted_within_five_minutes() {
        let header = format!("t=1700000000,v1={MAC}");
        for now in [1_700_000_000 - 300, 1_700_000_000, 1_700_000_300] {
            assert_eq!(check(&header, now), Ok(()), "{now}");
        }
        for now in [1_700_000_000 - 301, 1_700_000_301, 0] {
            assert_eq!(check(&header, now), Err(Rejection::TooOld), "{now}");
        }
    }

    #[test]
    fn one_good_signature_among_several_is_enough() {
        let other = "00".repeat(32);
        assert_eq!(check(&format!("t=1700000000, v1={other}, v1={MAC}, v2=later"), 1_700_000_000), Ok(()));
    }

    #[test]
    fn another_body_secret_or_time_is_a_bad_signature() {
        let header = format!("t=1700000000,v1={MAC}");
        let now = at(1_700_000_000);
        assert_eq!(verify(SECRET, &header, b"{}", now), Err(Rejection::BadSignature));
        assert_eq!(verify(b"whsec_other", &header, BODY, now), Err(Rejection::BadSignature));
        assert_eq!(check(&format!("t=1700000001,v1={MAC}"), 1_700_000_000), Err(Rejection::BadSignature));
        assert_eq!(check("t=1700000000,v1=00", 1_700_000_000), Err(Rejection::BadSignature));
        // An old forgery is told apart from an old delivery.
        assert_eq!(check(&format!("t=1,v1={MAC}"), 1_700_000_000), Err(Rejection::BadSignature));
    }

    #[test]
    fn what_is_no_signature_is_malformed() {
        for header in [
            "",
            "t=1700000000",
            &format!("v1={MAC}"),
            &format!("t=,v1={MAC}"),
            &format!("t=-5,v1={MAC}"),
            &format!("t=+5,v1={MAC}"),
            &format!("t=99999999999999999999999,v1={MAC}"),
            &format!("t=1,t=2,v1={MAC}"),
            "t=1700000000,v1=zz",
            "nonsense",
        ] {
            assert_eq!(check(header, 1_700_000_000), Err(Rejection::Malformed), "{header}");
        }
    }
}
