//! How many keys of a tenant are in progress or in doubt, over all gateways, about.
//!
//! Counting them exactly would cost every reservation a look at the others. Instead each gateway asks the idempotency service
//! every [`EVERY`] how many there are, for all tenants at once, and adds what it has begun and subtracts what it has ended itself
//! since. So a request costs two reads of memory; the count is late by at most that time for what other gateways do, and when the
//! service cannot be asked, only what this gateway does itself is counted.

use super::Limiter;
use chassis::{shutdown::Shutdown, tasks};
use idem_client::{ClientError, IdemClient};
use std::{
    collections::HashMap,
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// How often the idempotency service is asked.
const EVERY: Duration = Duration::from_secs(2);
/// How long it may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// When a client that was refused for its live keys should come back, in seconds: after the next look or two.
pub(super) const RETRY_AFTER: u32 = 5;

/// The scopes of this service's keys.
const SCOPES: &str = "rest/*";

/// What is known of a tenant's live keys.
#[derive(Default)]
pub(super) struct Estimate {
    /// As reported.
    reported: AtomicU64,
    /// How many of those that this gateway was at when it asked.
    here_then: AtomicU64,
}

/// Keeps the estimates of a limiter up to date.
pub(crate) struct Watch {
    pub(crate) limiter: Limiter,
    pub(crate) idem: IdemClient,
}

// === impl Estimate ===

impl Estimate {
    /// Live keys when this gateway is at `here` of them.
    pub(super) fn with(&self, here: u64) -> u64 {
        let elsewhere = self.reported.load(Ordering::Relaxed).saturating_sub(self.here_then.load(Ordering::Relaxed));
        elsewhere + here
    }

    pub(super) fn set(&self, reported: u64, here_then: u64) {
        self.reported.store(reported, Ordering::Relaxed);
        self.here_then.store(here_then, Ordering::Relaxed);
    }
}

// === impl Watch ===

impl Watch {
    /// Asks until the drain begins.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let mut is_known = true;
        loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            match tasks::round("count live keys", self.look()).await {
                Some(Ok(())) => is_known = true,
                // Said once an outage: the reconciler, which asks the same service, says the rest.
                Some(Err(error)) if is_known => {
                    is_known = false;
                    let error = &error as &dyn Error;
                    tracing::warn!(error, "live keys could not be counted: only this gateway's own count");
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    async fn look(&self) -> Result<(), ClientError> {
        let tenants: Vec<_> = {
            let known = self.limiter.shared.tenants.read().expect("nothing panics while it holds this lock");
            known.iter().map(|(scope, tenant)| (scope.clone(), tenant.clone())).collect()
        };
        if tenants.is_empty() {
            return Ok(());
        }
        let here: Vec<u64> = tenants.iter().map(|(_, tenant)| tenant.keyed.load(Ordering::Relaxed)).collect();
        let counted = self.idem.live_keys(SCOPES, Instant::now() + PATIENCE).await;
        let mut live: HashMap<_, _> = match &counted {
            Ok(counted) => counted.iter().map(|live| (live.scope.clone(), live.keys)).collect(),
            Err(_) => HashMap::new(),
        };
        for ((scope, tenant), here) in tenants.into_iter().zip(here) {
            // Without an answer nothing is known of the others.
            tenant.live.set(live.remove(&scope).unwrap_or_default(), here);
        }
        counted.map(drop)
    }
}
