//! How much one tenant may ask of this gateway: requests a second, requests in flight, and live keys.
//!
//! Each tenant has counts of its own, so whoever asks too much is refused alone. A refusal is a 429 that is decided before the body
//! is read and before a key is reserved: nothing was executed, and nothing is remembered. The counts are this process's; only live
//! keys are also looked at across gateways ([`live_keys`]).

mod bucket;
pub(crate) mod live_keys;

use crate::{
    auth::Principal,
    error::{self, catalogue},
};
use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use bucket::{Bucket, Pace};
use http::{HeaderMap, HeaderValue, Method};
use idem_core::{IdempotencyKey, Scope};
use idem_layer::{IDEMPOTENCY_KEY, Problem};
use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// What one tenant may ask of one gateway. Zero is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Requests a second, in the long run.
    pub rate: u32,
    /// Requests at once after a pause; zero for as many as a second allows.
    pub burst: u32,
    /// Requests in flight. One whose client has gone counts until its operation ends.
    pub in_flight: u32,
    /// Keys in progress or in doubt, over all gateways.
    pub live_keys: u32,
}

/// Judges requests by [`Limits`]. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    pace: Option<Pace>,
    begun: Instant,
    tenants: RwLock<HashMap<Scope, Arc<Tenant>>>,
    /// Whoever sends webhooks, which bring no API key.
    strangers: Arc<Tenant>,
}

/// What a tenant is doing now.
#[derive(Default)]
struct Tenant {
    bucket: Bucket,
    in_flight: AtomicU64,
    /// Keyed requests of this gateway that have not ended.
    keyed: AtomicU64,
    live: live_keys::Estimate,
}

/// A request that was let in; it counts until the last clone is dropped.
pub(crate) struct Slot {
    tenant: Arc<Tenant>,
    is_keyed: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Excess {
    Rate { limit: u32, wait: Duration },
    InFlight { limit: u32 },
    LiveKeys { limit: u32 },
}

tokio::task_local! {
    /// The slot of the request that is being served.
    static SLOT: Arc<Slot>;
}

/// The slot of the current request, for work that may outlive its connection.
pub(crate) fn slot() -> Option<Arc<Slot>> {
    SLOT.try_with(Arc::clone).ok()
}

/// Lets a request of a known tenant in, or answers 429. Goes inside the authentication.
pub(crate) async fn admit(State(limiter): State<Limiter>, request: Request, next: Next) -> Response {
    let keyed = keyed_route(&request);
    let principal = request.extensions().get::<Principal>();
    let scope = principal.expect("every route under /v1 is behind `authenticate`").tenant.scope();
    match limiter.admit(scope, keyed.is_some()) {
        Ok(slot) => SLOT.scope(Arc::new(slot), next.run(request)).await,
        Err(excess) => {
            count(excess, scope.as_str(), keyed);
            refuse(excess, request.headers())
        }
    }
}

/// The same for webhooks that have arrived whole, whose senders share one count of requests in flight: who only announces one, and
/// anybody can, takes nothing from the others. Their rate is the acquirer's affair: what it cannot deliver it delivers later.
pub(crate) async fn admit_stranger<T>(limiter: &Limiter, work: impl Future<Output = T>) -> Result<T, Problem> {
    match limiter.enter(&limiter.shared.strangers, false) {
        Ok(slot) => Ok(SLOT.scope(Arc::new(slot), work).await),
        Err(excess) => {
            count(excess, "webhooks", None);
            Err(excess.problem())
        }
    }
}

/// The route whose outcomes a request counts among, when it is one that a key protects.
fn keyed_route(request: &Request) -> Option<String> {
    if request.method() != Method::POST {
        return None;
    }
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    let is_keyed = match path {
        "/v1/orders" | "/v1/payments" => true,
        "/v1/orders/{id}/confirm" | "/v1/orders/{id}/cancel" | "/v1/tickets/{id}/check-in" => {
            request.headers().contains_key(&IDEMPOTENCY_KEY)
        }
        _ => false,
    };
    is_keyed.then(|| format!("POST {path}"))
}

fn count(excess: Excess, scope: &str, keyed: Option<String>) {
    metrics::counter!("gateway_rate_limited_total", "scope" => scope.to_owned(), "reason" => excess.reason())
        .increment(1);
    if let Some(route) = keyed {
        // Every keyed request has exactly one outcome, and this one never reaches the layer that counts the others.
        metrics::counter!("gateway_idempotency_outcomes_total", "route" => route, "outcome" => "rate_limited")
            .increment(1);
    }
}

fn refuse(excess: Excess, headers: &HeaderMap) -> Response {
    let mut response = error::respond(&excess.problem());
    if let Some(line) = sent_key(headers) {
        response.headers_mut().insert(IDEMPOTENCY_KEY, line.clone());
    }
    response
}

/// The key of a request, as it was sent, if it is one.
fn sent_key(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let line = lines.next().filter(|line| IdempotencyKey::from_header(line.as_bytes()).is_ok())?;
    lines.next().is_none().then_some(line)
}

// === impl Limits ===

impl Limits {
    /// Nothing is limited.
    pub fn are_off(&self) -> bool {
        self.rate == 0 && self.in_flight == 0 && self.live_keys == 0
    }
}

// === impl Limiter ===

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        let shared = Shared {
            limits,
            pace: Pace::new(limits.rate, limits.burst),
            begun: Instant::now(),
            tenants: RwLock::default(),
            strangers: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    fn admit(&self, scope: &Scope, is_keyed: bool) -> Result<Slot, Excess> {
        let tenant = self.tenant(scope);
        // First what takes nothing when it refuses: a request that finds no room must not use up the rate as well.
        let slot = self.enter(&tenant, is_keyed)?;
        if let Some(pace) = &self.shared.pace {
            let now = self.shared.begun.elapsed();
            let limit = self.shared.limits.rate;
            tenant.bucket.take(now, pace).map_err(|wait| Excess::Rate { limit, wait })?;
        }
        Ok(slot)
    }

    fn enter(&self, tenant: &Arc<Tenant>, is_keyed: bool) -> Result<Slot, Excess> {
        let limits = &self.shared.limits;
        // Dropped on refusal, which gives back what it took.
        let (slot, others) = Slot::take(tenant, is_keyed);
        if limits.in_flight > 0 && others >= u64::from(limits.in_flight) {
            return Err(Excess::InFlight { limit: limits.in_flight });
        }
        if is_keyed && limits.live_keys > 0 {
            let here = tenant.keyed.load(Ordering::Relaxed);
            if tenant.live.with(here) > u64::from(limits.live_keys) {
                return Err(Excess::LiveKeys { limit: limits.live_keys });
            }
        }
        Ok(slot)
    }

    fn tenant(&self, scope: &Scope) -> Arc<Tenant> {
        const WHOLE: &str = "nothing panics while it holds this lock";
        if let Some(tenant) = self.shared.tenants.read().expect(WHOLE).get(scope) {
            return tenant.clone();
        }
        // As many as there are tenants with API keys.
        self.shared.tenants.write().expect(WHOLE).entry(scope.clone()).or_default().clone()
    }
}

// === impl Slot ===

impl Slot {
    /// Counts one more request; and how many there were before it.
    fn take(tenant: &Arc<Tenant>, is_keyed: bool) -> (Self, u64) {
        let others = tenant.in_flight.fetch_add(1, Ordering::Relaxed);
        if is_keyed {
            tenant.keyed.fetch_add(1, Ordering::Relaxed);
        }
        (Self { tenant: tenant.clone(), is_keyed }, others)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.tenant.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.is_keyed {
            self.tenant.keyed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// === impl Excess ===

impl Excess {
    fn reason(self) -> &'static str {
        match self {
            Self::Rate { .. } => "rate",
            Self::InFlight { .. } => "in_flight",
            Self::LiveKeys { .. } => "live_keys",
        }
    }

    fn problem(self) -> Problem {
        let (detail, wait) = match self {
            Self::Rate { limit, wait } => {
                (format!("this tenant may send {limit} requests a second; nothing was executed"), whole_seconds(wait))
            }
            Self::InFlight { limit } => {
                (format!("this tenant has {limit} requests in flight, as many as it may; nothing was executed"), 1)
            }
            // They end with their operations, or when the reconciler has asked what became of them.
            Self::LiveKeys { limit } => (
                format!(
                    "this tenant has {limit} keys whose request is not settled, as many as it may; nothing was executed"
                ),
                live_keys::RETRY_AFTER,
            ),
        };
        catalogue::RATE_LIMITED.problem(detail).reason(self.reason()).retry_after(wait)
    }
}

/// Rounded up: who comes back earlier is refused again.
fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
