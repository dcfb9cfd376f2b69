//! What lies between the world with its nemesis and those who buy and check: addresses, secrets, time, and when which
//! fault was at work.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

/// What buyers and the checker can reach. Cheap to clone; every clone is the same campaign.
#[derive(Clone, Debug)]
pub struct Edge {
    /// REST of each gateway, through a proxy of its own that the nemesis may cut: a call can fail, hang or lose its
    /// answer, so give each a timeout and try the other gateway.
    pub gateways: Vec<SocketAddr>,
    /// The acquirer's sandbox without a proxy, for its control routes and the ledger.
    pub sandbox: SocketAddr,
    /// Both stores, behind everybody's back.
    pub store: StoreAccess,
    /// Who buys.
    pub tenants: Vec<Tenant>,
    /// May `PUT /v1/ticket-types/{id}`.
    pub operator_key: String,
    /// Signs webhooks.
    pub webhook_secret: String,
    /// `--lease` of the gateways.
    pub lease: Duration,
    /// `--upstream-timeout` of the gateways.
    pub upstream_timeout: Duration,
    /// `--hold-ttl` of the orders services.
    pub hold_ttl: Duration,
    /// How long buyers may wait for an answer before they give up and retry.
    pub client_timeout: Duration,
    /// How often a buyer hangs up in the middle of a request and asks again later (0.0 to 1.0). It is the nemesis' fault
    /// "client gone", carried out by the buyers; zero when `--faults` leaves it out.
    pub client_gone: f64,
    /// The campaign's one clock.
    pub clock: CampaignClock,
    /// When which fault was at work.
    pub windows: Windows,
}

/// An integration with an API key.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// As in `rest/<name>`, the gateway's scope of its keys.
    pub name: String,
    /// For `Authorization: Bearer`.
    pub api_key: String,
}

/// How to read both stores.
#[derive(Clone, Debug)]
pub enum StoreAccess {
    /// A primary with a synchronous standby.
    Postgres(PrimaryAddress),
    /// One file a service. Open them read-only; both are in write-ahead-log mode.
    Sqlite {
        /// The idempotency service's.
        idem: PathBuf,
        /// The orders service's.
        orders: PathBuf,
    },
}

/// Where the current primary listens, without a proxy; another server after a failover.
#[derive(Clone, Debug)]
pub struct PrimaryAddress {
    current: watch::Receiver<SocketAddr>,
}

/// A store's database on the current primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatabaseOf {
    /// The idempotency service's tables.
    Idem,
    /// The orders service's tables.
    Orders,
}

/// Milliseconds since the campaign began, from a clock that only goes forward and that no fault touches.
#[derive(Clone, Copy, Debug)]
pub struct CampaignClock {
    start: Instant,
}

/// A fault's window: from its begin to when its effect is over, the time to recover included.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Its kind, as in `--faults`.
    pub fault: String,
    /// What it was done to: a process, a road, a store.
    pub target: String,
    /// Its begin.
    pub from_ms: u64,
    /// Its end; none while it lasts.
    pub until_ms: Option<u64>,
}

/// All windows so far; every clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    all: Arc<Mutex<Vec<Window>>>,
}

/// One window that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowId(usize);

// === impl PrimaryAddress ===

impl PrimaryAddress {
    /// Follows the primary.
    pub fn new(current: watch::Receiver<SocketAddr>) -> Self {
        Self { current }
    }

    /// A connection URL for one service's database on the server that is the primary now. It may be down: try again, with
    /// a fresh URL each time.
    pub fn url(&self, of: DatabaseOf) -> String {
        let database = match of {
            DatabaseOf::Idem => "idem",
            DatabaseOf::Orders => "orders",
        };
        format!("postgres://postgres@{}/{database}", *self.current.borrow())
    }
}

// === impl CampaignClock ===

impl CampaignClock {
    /// A campaign that begins now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Milliseconds since then.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

// === impl Windows ===

impl Windows {
    /// A fault begins.
    pub fn begin(&self, fault: &str, target: &str, at_ms: u64) -> WindowId {
        let mut all = self.lock();
        all.push(Window { fault: fault.to_owned(), target: target.to_owned(), from_ms: at_ms, until_ms: None });
        WindowId(all.len() - 1)
    }

    /// Its effect is over.
    pub fn end(&self, id: WindowId, at_ms: u64) {
        if let Some(window) = self.lock().get_mut(id.0) {
            window.until_ms = Some(at_ms);
        }
    }

    /// The list as it is now.
    pub fn snapshot(&self) -> Vec<Window> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Window>> {
        self.all.lock().expect("nobody panics while holding the list")
    }
}

impl Window {
    /// May it fail a request? What only comes by webhook can be asked for, and nobody's lease hangs on a process's own clock.
    pub fn may_fail_requests(&self) -> bool {
        !self.fault.starts_with("webhook-") && self.fault != "clock"
    }

    /// Was it at work at any moment from `from_ms` to `until_ms`?
    pub fn overlaps(&self, from_ms: u64, until_ms: u64) -> bool {
        self.from_ms <= until_ms && self.until_ms.is_none_or(|end| from_ms <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_an_end_lasts() {
        let windows = Windows::default();
        let (first, _second) = (windows.begin("kill", "gateway-0", 100), windows.begin("cut", "gateway-0-idem", 150));
        windows.end(first, 200);
        let [closed, open] = &windows.snapshot()[..] else { panic!("two windows") };
        assert!(closed.overlaps(0, 100) && closed.overlaps(200, 300) && closed.overlaps(120, 130));
        assert!(!closed.overlaps(0, 99) && !closed.overlaps(201, 300));
        assert!(open.overlaps(10_000, 10_001) && !open.overlaps(0, 149));
    }
}
