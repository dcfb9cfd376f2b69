//! Webhooks that nobody at the acquirer has signed, or signed long ago. All of them must be refused.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use chassis::clock;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::Shared;

/// A signature may be 5 minutes old.
const TOO_OLD: Duration = Duration::from_secs(11 * 60);

/// What is wrong with a forgery.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Signed with another secret.
    Secret,
    /// The signature of another body: the decision was turned round.
    Body,
    /// Signed rightly, too long ago.
    Age,
    /// Not signed.
    Unsigned,
    /// A signature that is none.
    Garbage,
}

// === impl Shared ===

impl Shared {
    /// One of each kind, made of a real one.
    pub(super) fn forge(self: &Arc<Self>, body: Bytes) {
        for flaw in [Flaw::Secret, Flaw::Body, Flaw::Age, Flaw::Unsigned, Flaw::Garbage] {
            let (shared, body) = (self.clone(), body.clone());
            self.tasks.spawn("forged webhook", async move { shared.send_forged(flaw, body).await });
        }
    }

    async fn send_forged(&self, flaw: Flaw, body: Bytes) {
        if matches!(flaw, Flaw::Age) && self.is_a_clock_off() {
            // Who lives ten minutes ago may take it for fresh.
            return;
        }
        let gateway = self.gateways[self.next.fetch_add(1, Ordering::Relaxed) % self.gateways.len()];
        let (signature, body) = self.forgery(flaw, body);
        let mut request = self.http.post(format!("http://{gateway}{}", super::PATH)).body(body.clone());
        request = request.header("content-type", "application/json");
        if let Some(signature) = signature {
            request = request.header("acquirer-signature", signature);
        }
        let Ok(answer) = request.send().await else { return };
        match answer.status().as_u16() {
            400 | 401 => {
                self.forged.fetch_add(1, Ordering::Relaxed);
            }
            // Nobody could judge it.
            500.. => {}
            _ if matches!(flaw, Flaw::Age) && self.is_a_clock_off() => {}
            status => self.incidents.violation(format!(
                "a forged webhook ({flaw:?}) was answered {status}: {}",
                String::from_utf8_lossy(&body)
            )),
        }
    }

    fn forgery(&self, flaw: Flaw, body: Bytes) -> (Option<String>, Bytes) {
        let now = clock::wall();
        match flaw {
            Flaw::Secret => {
                let body = turned_round(&body);
                (Some(sign("whsec_guessed", now, &body)), body)
            }
            Flaw::Body => (Some(sign(&self.secret, now, &body)), turned_round(&body)),
            Flaw::Age => (Some(sign(&self.secret, now - TOO_OLD, &body)), body),
            Flaw::Unsigned => (None, turned_round(&body)),
            Flaw::Garbage => (Some("t=now,v1=00".to_owned()), turned_round(&body)),
        }
    }

    fn is_a_clock_off(&self) -> bool {
        self.windows.snapshot().iter().any(|window| window.fault == "clock" && window.until_ms.is_none())
    }
}

// === helpers ===

fn turned_round(body: &Bytes) -> Bytes {
    let text = String::from_utf8_lossy(body);
    let turned = if text.contains("payment.approved") {
        text.replace("payment.approved", "payment.declined")
    } else {
        text.replace("payment.declined", "payment.approved")
    };
    Bytes::from(turned)
}

/// `t=<unix>,v1=<hex HMAC-SHA-256 of "t.body">`
fn sign(secret: &str, at: std::time::SystemTime, body: &[u8]) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    format!("t={seconds},v1={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_turned_round_says_the_contrary() {
        let approved = Bytes::from_static(br#"{"type":"payment.approved"}"#);
        assert_eq!(turned_round(&approved), br#"{"type":"payment.declined"}"#[..]);
        assert_eq!(turned_round(&turned_round(&approved)), approved);
    }
}
