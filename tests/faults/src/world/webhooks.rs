//! The road of webhooks, from the acquirer to the gateways: it can lose, repeat and reorder them, and forge some.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use bytes::Bytes;
use chassis::tasks::Tasks;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::{net::TcpListener, sync::watch, time::sleep};

use super::incidents::Incidents;
use crate::edge::Windows;

mod forge;

const PATH: &str = "/webhooks/acquirer";

/// As the acquirer's own patience, which is 5 s.
const PATIENCE: Duration = Duration::from_secs(4);

/// How late a reordered webhook is at most: later than others that came after it.
const LATE_MAX: Duration = Duration::from_secs(4);

/// How many bodies are remembered for forgeries.
const REMEMBERED: usize = 16;

/// What happens to webhooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mischief {
    /// They arrive.
    #[default]
    None,
    /// The acquirer is told that they arrived, and they did not.
    Lost,
    /// They arrive three times.
    Repeated,
    /// They arrive in another order, seconds late.
    Reordered,
    /// They arrive, and with them others that nobody at the acquirer has signed.
    Forged,
}

/// The relay.
#[derive(Clone)]
pub struct Webhooks {
    shared: Arc<Shared>,
}

struct Shared {
    gateways: Vec<SocketAddr>,
    next: AtomicUsize,
    secret: String,
    http: reqwest::Client,
    mischief: watch::Sender<Mischief>,
    random: Mutex<StdRng>,
    seen: Mutex<VecDeque<Bytes>>,
    tasks: Tasks,
    windows: Windows,
    incidents: Incidents,
    forged: AtomicU64,
}

// === impl Webhooks ===

impl Webhooks {
    /// Listens at `address`, and forwards to the gateways in turn.
    pub async fn start(
        address: SocketAddr,
        gateways: Vec<SocketAddr>,
        secret: &str,
        seed: u64,
        tasks: &Tasks,
        windows: Windows,
        incidents: Incidents,
    ) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            gateways,
            next: AtomicUsize::new(0),
            secret: secret.to_owned(),
            http: reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().context("an HTTP client")?,
            mischief: watch::Sender::default(),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            seen: Mutex::default(),
            tasks: tasks.clone(),
            windows,
            incidents,
            forged: AtomicU64::new(0),
        });
        let listener = TcpListener::bind(address).await.with_context(|| format!("the webhook relay at {address}"))?;
        let routes = Router::new().fallback(relay).with_state(shared.clone());
        tasks.spawn("webhook relay", async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { shared })
    }

    /// From now on.
    pub fn make(&self, mischief: Mischief) {
        self.shared.mischief.send_replace(mischief);
        if mischief == Mischief::Forged {
            // Some at once: there may be no real one for a while.
            let seen: Vec<Bytes> = self.shared.seen().iter().take(4).cloned().collect();
            for body in seen {
                self.shared.forge(body);
            }
        }
    }

    /// How many forged ones were refused.
    pub fn forgeries_refused(&self) -> u64 {
        self.shared.forged.load(Ordering::Relaxed)
    }
}

// === the relay's one route ===

async fn relay(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    shared.remember(&body);
    let mischief = *shared.mischief.borrow();
    match mischief {
        Mischief::None => shared.forward(&headers, &body).await,
        Mischief::Lost => StatusCode::OK,
        Mischief::Repeated => {
            for late in [Duration::ZERO, Duration::from_secs(2)] {
                shared.forward_later(late, headers.clone(), body.clone());
            }
            shared.forward(&headers, &body).await
        }
        Mischief::Reordered => {
            let late = LATE_MAX.mul_f64(shared.random().random_range(0.0..1.0));
            shared.forward_later(late, headers, body);
            StatusCode::OK
        }
        Mischief::Forged => {
            shared.forge(body.clone());
            shared.forward(&headers, &body).await
        }
    }
}

// === impl Shared ===

impl Shared {
    /// To the next gateway, or to another one if that cannot be reached.
    async fn forward(&self, headers: &HeaderMap, body: &Bytes) -> StatusCode {
        for _ in &self.gateways {
            let gateway = self.gateways[self.next.fetch_add(1, Ordering::Relaxed) % self.gateways.len()];
            let mut request = self.http.post(format!("http://{gateway}{PATH}")).body(body.clone());
            for name in ["content-type", "acquirer-signature", "traceparent"] {
                if let Some(value) = headers.get(name) {
                    request = request.header(name, value);
                }
            }
            match request.send().await {
                Ok(answer) => return answer.status(),
                Err(error) => tracing::debug!(%gateway, %error, "a webhook was not delivered"),
            }
        }
        StatusCode::BAD_GATEWAY
    }

    fn forward_later(self: &Arc<Self>, late: Duration, headers: HeaderMap, body: Bytes) {
        let shared = self.clone();
        self.tasks.spawn("late webhook", async move {
            sleep(late).await;
            shared.forward(&headers, &body).await
        });
    }

    fn remember(&self, body: &Bytes) {
        let mut seen = self.seen();
        seen.push_front(body.clone());
        seen.truncate(REMEMBERED);
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, VecDeque<Bytes>> {
        self.seen.lock().expect("nobody panics while holding the list")
    }

    fn random(&self) -> std::sync::MutexGuard<'_, StdRng> {
        self.random.lock().expect("nobody panics while holding the generator")
    }
}
