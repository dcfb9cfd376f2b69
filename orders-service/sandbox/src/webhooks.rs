//! Telling the merchant: signed deliveries, repeated until one is accepted.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chassis::flags::Secret;
use chassis::{clock, process, trace};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::event::Event;
use crate::signature;

/// When a delivery is tried, counted from the first try. A try that takes longer puts the next one off.
const TRIES_AT_SECONDS: [u64; 5] = [0, 1, 2, 4, 8];

/// A merchant that takes longer than this to accept an event has not accepted it.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Where events go, and whether they arrive.
pub(crate) struct Webhooks {
    client: reqwest::Client,
    secret: Secret,
    url: RwLock<Option<Url>>,
    enabled: AtomicBool,
}

/// The text is no URL that webhooks can be sent to.
#[derive(Debug, thiserror::Error)]
#[error("webhook URL {url:?} is not of the form http://host:port/path")]
pub struct InvalidWebhookUrl {
    url: String,
}

/// Why an event is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// It has just happened. Lost while webhooks are off.
    News,
    /// Somebody asked for it again. Sent even while webhooks are off.
    Redelivery,
}

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    Accepted,
    Refused,
    /// There is nowhere to send it.
    Lost,
}

// === impl Webhooks ===

impl Webhooks {
    pub(crate) fn new(secret: Secret, url: Option<Url>) -> Result<Self, reqwest::Error> {
        // A redirect is not an acceptance, and a proxy meant for the outside must not see loopback traffic.
        let client = reqwest::Client::builder().timeout(TRY_TIMEOUT).redirect(Policy::none()).no_proxy().build()?;
        Ok(Webhooks { client, secret, url: RwLock::new(url), enabled: AtomicBool::new(true) })
    }

    pub(crate) fn set_url(&self, url: Url) {
        *self.url.write().expect("nobody panics while holding the URL") = Some(url);
    }

    pub(crate) fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Tries until a try is accepted or the last has failed.
    pub(crate) async fn deliver(&self, event: Event, occasion: Occasion) {
        let outcome = repeat(|| async {
            match self.destination(occasion) {
                Some(url) => self.try_once(&event, url).await,
                None => Try::Lost,
            }
        });
        match outcome.await {
            Try::Accepted => debug!(event.id, "webhook accepted"),
            Try::Refused => warn!(event.id, "webhook given up; it can be redelivered by hand"),
            Try::Lost => info!(event.id, "webhook lost: none are sent now"),
        }
    }

    fn destination(&self, occasion: Occasion) -> Option<Url> {
        if occasion == Occasion::News && !self.enabled.load(Ordering::Relaxed) {
            return None;
        }
        self.url.read().expect("nobody panics while holding the URL").clone()
    }

    /// Signed anew each time: the receiver refuses a signature that is too old.
    async fn try_once(&self, event: &Event, url: Url) -> Try {
        let mut headers = HeaderMap::new();
        trace::inject(&mut headers);
        let request = self
            .client
            .post(url)
            .headers(headers)
            .header(CONTENT_TYPE, "application/json")
            .header(signature::HEADER, signature::sign(self.secret.expose(), clock::wall(), &event.body))
            .body(event.body.clone());
        match request.send().await {
            Ok(response) if response.status().is_success() => Try::Accepted,
            Ok(response) => {
                info!(event.id, status = response.status().as_u16(), "webhook not accepted");
                Try::Refused
            }
            Err(error) => {
                info!(event.id, error = process::sentence(&error), "webhook not delivered");
                Try::Refused
            }
        }
    }
}

/// Tries at the appointed times until a try is not refused; answers how the last one ended.
async fn repeat<F: Future<Output = Try>>(mut attempt: impl FnMut() -> F) -> Try {
    let start = Instant::now();
    for seconds in TRIES_AT_SECONDS {
        sleep_until(start + Duration::from_secs(seconds)).await;
        match attempt().await {
            Try::Refused => {}
            outcome => return outcome,
        }
    }
    Try::Refused
}

/// Plain HTTP only: the sandbox and its merchant live on one machine or one private network.
pub(crate) fn parse_url(text: &str) -> Result<Url, InvalidWebhookUrl> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "http" && url.has_host() => Ok(url),
        Ok(_) | Err(_) => Err(InvalidWebhookUrl { url: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// At which seconds it is tried, when each try takes this long and is answered from `outcomes`.
    async fn tries(takes: Duration, outcomes: &[Try]) -> (Vec<u64>, Try) {
        let start = Instant::now();
        let mut at = Vec::new();
        let outcome = repeat(|| {
            at.push(start.elapsed().as_secs());
            let outcome = outcomes[at.len() - 1];
            async move {
                advance(takes).await;
                outcome
            }
        });
        let outcome = outcome.await;
        (at, outcome)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_delivery_is_tried_again_after_1_2_4_and_8_seconds_and_given_up() {
        assert_eq!(tries(Duration::ZERO, &[Try::Refused; 5]).await, (vec![0, 1, 2, 4, 8], Try::Refused));
    }

    #[tokio::test(start_paused = true)]
    async fn accepted_or_lost_delivery_is_not_tried_again() {
        for end in [Try::Accepted, Try::Lost] {
            assert_eq!(tries(Duration::ZERO, &[Try::Refused, Try::Refused, end]).await, (vec![0, 1, 2], end));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_try_puts_the_next_one_off() {
        let tries = tries(Duration::from_secs(5), &[Try::Refused; 5]).await;
        assert_eq!(tries, (vec![0, 5, 10, 15, 20], Try::Refused));
    }
}
