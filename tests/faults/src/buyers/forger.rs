//! Webhooks that the acquirer never sent: an approval with a wrong signature, with a signature of long ago, or with none.

use std::time::{Duration, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::Rng as _;
use serde_json::json;
use sha2::Sha256;

use super::buyer::Buyer;
use crate::history::{Answer, Control, Deed, Event};

/// Older than any signature that is believed, also by a clock that is ten minutes off.
const LONG_AGO: Duration = Duration::from_secs(3600);

impl Buyer {
    /// Says of a payment that it was declined, or of one that there is not that it was approved.
    pub(super) async fn forge(&mut self, payment: &Answer) {
        let said = payment.json();
        let (mine, amount) = (said["id"].as_str().unwrap_or_default().to_owned(), said["amount"].as_i64().unwrap_or(1));
        let event = format!("evt_forged_{}_{}", self.number, self.sender.recorder.number());
        let kind = if self.chance(0.5) { "payment.declined" } else { "payment.approved" };
        let body = json!({
            "id": event, "type": kind, "paymentId": mine, "amount": amount, "currency": "EUR",
            "occurredAt": "2030-01-02T03:04:05Z",
        })
        .to_string();
        let now = chassis::clock::wall();
        let signature = match self.randomness.random_range(0..4) {
            0 => None,
            1 => Some(sign("whsec_guessed", now, &body)),
            2 => Some(sign(&self.sender.edge.webhook_secret, now - LONG_AGO, &body)),
            _ => Some(sign(&self.sender.edge.webhook_secret, now, &body.replace("EUR", "USD"))),
        };
        let gateway = self.gateway();
        let status = self.deliver(gateway, body, signature).await;
        let ms = self.sender.edge.clock.now_ms();
        self.sender.recorder.record(Event::Control(Control { ms, deed: Deed::Forge, target: event, status }));
    }

    async fn deliver(&self, gateway: usize, body: String, signature: Option<String>) -> Option<u16> {
        let client = reqwest::Client::builder().no_proxy().timeout(self.sender.edge.client_timeout).build().ok()?;
        let url = format!("http://{}/webhooks/acquirer", self.sender.edge.gateways[gateway]);
        let mut request = client.post(url).header("content-type", "application/json").body(body);
        if let Some(signature) = signature {
            request = request.header("acquirer-signature", signature);
        }
        request.send().await.ok().map(|answer| answer.status().as_u16())
    }
}

fn sign(secret: &str, at: std::time::SystemTime, body: &str) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex::encode(mac.finalize().into_bytes()))
}
