//! Which processes there are, on which addresses, and by which roads they reach each other.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use chassis::tasks::Tasks;

use super::proxy::Proxy;

/// Signs webhooks.
pub const WEBHOOK_SECRET: &str = "whsec_faults";

/// `--lease`: short, so that leases run out while a campaign looks on; long enough for a machine that does other things too.
pub const LEASE: Duration = Duration::from_secs(5);
/// `--upstream-timeout`
pub const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(3);
/// `--acquirer-timeout`
pub const ACQUIRER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// `--drain`, longer than a request.
pub const DRAIN: Duration = Duration::from_secs(4);
/// How long buyers wait for an answer: longer than a reservation, a request and the storing of its answer take.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// `--hold-ttl`: holds run out within a campaign, also those that a payment keeps alive.
pub const HOLD_TTL: Duration = Duration::from_secs(30);

/// The acquirer's name; it is never killed, because its ledger is in its memory.
pub const ACQUIRER: &str = "acquirer";

/// Two of each on Postgres; on SQLite one process holds the file.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Gateways.
    pub gateways: usize,
    /// Idempotency services, and as many orders services.
    pub services: usize,
}

/// Where everything listens.
pub struct Layout {
    /// REST and admin of each gateway.
    pub gateways: Vec<[SocketAddr; 2]>,
    /// gRPC and admin.
    pub idems: Vec<[SocketAddr; 2]>,
    /// gRPC and admin.
    pub orders: Vec<[SocketAddr; 2]>,
    /// The acquirer.
    pub acquirer: SocketAddr,
    /// The relay of its webhooks.
    pub webhooks: SocketAddr,
    /// The two servers, and the roads on which each is followed by the other.
    pub postgres: [SocketAddr; 4],
    roads: BTreeMap<String, SocketAddr>,
}

// === impl Layout ===

impl Layout {
    /// Free addresses for everything.
    pub fn choose(counts: Counts) -> anyhow::Result<Self> {
        let pairs = |count: usize| -> std::io::Result<Vec<[SocketAddr; 2]>> {
            (0..count).map(|_| Ok([free_port::one()?, free_port::one()?])).collect()
        };
        let (gateways, idems, orders) = (pairs(counts.gateways)?, pairs(counts.services)?, pairs(counts.services)?);
        let mut roads = BTreeMap::new();
        for road in road_names(counts) {
            roads.insert(road, free_port::one()?);
        }
        let postgres = [free_port::one()?, free_port::one()?, free_port::one()?, free_port::one()?];
        Ok(Self { gateways, idems, orders, acquirer: free_port::one()?, webhooks: free_port::one()?, postgres, roads })
    }

    /// Begins to listen on every road.
    pub async fn open_roads(&self, tasks: &Tasks) -> anyhow::Result<Vec<Proxy>> {
        let mut proxies = Vec::new();
        for (name, address) in &self.roads {
            proxies.push(Proxy::start(name, *address, self.servers_of(name), tasks).await?);
        }
        Ok(proxies)
    }

    /// The road from one to another.
    pub fn road(&self, from: &str, to: &str) -> SocketAddr {
        self.roads[&format!("{from}/{to}")]
    }

    /// The flags of every process, by its name.
    pub fn flags(
        &self,
        home: &Path,
        stores: &dyn Fn(&str, &str) -> String,
    ) -> Vec<(String, &'static str, Vec<String>)> {
        let keys = home.join("api-keys.json").display().to_string();
        let mut all = vec![(
            ACQUIRER.to_owned(),
            "acquirer-sandbox",
            flags(&[
                ("--listen", self.acquirer.to_string()),
                ("--webhook-url", format!("http://{}/webhooks/acquirer", self.webhooks)),
                ("--webhook-secret", WEBHOOK_SECRET.to_owned()),
            ]),
        )];
        for (i, [listen, admin]) in self.idems.iter().enumerate() {
            let name = format!("idem-{i}");
            let store = stores(&name, "idem");
            all.push((
                name,
                "idem-service",
                flags(&[
                    ("--listen", listen.to_string()),
                    ("--admin-listen", admin.to_string()),
                    ("--store", store),
                    ("--drain", millis(DRAIN)),
                    ("--drain-delay", "0s".to_owned()),
                    ("--purge-interval", "5s".to_owned()),
                ]),
            ));
        }
        for (i, [listen, admin]) in self.orders.iter().enumerate() {
            let name = format!("orders-{i}");
            let store = stores(&name, "orders");
            all.push((
                name.clone(),
                "orders-service",
                flags(&[
                    ("--listen", listen.to_string()),
                    ("--admin-listen", admin.to_string()),
                    ("--store", store),
                    ("--acquirer-url", format!("http://{}", self.road(&name, ACQUIRER))),
                    ("--acquirer-timeout", millis(ACQUIRER_TIMEOUT)),
                    ("--webhook-secret", WEBHOOK_SECRET.to_owned()),
                    ("--hold-ttl", millis(HOLD_TTL)),
                    ("--drain", millis(DRAIN)),
                ]),
            ));
        }
        for (i, [listen, admin]) in self.gateways.iter().enumerate() {
            let name = format!("gateway-{i}");
            all.push((
                name.clone(),
                "gateway",
                flags(&[
                    ("--listen", listen.to_string()),
                    ("--admin-listen", admin.to_string()),
                    ("--idem-endpoint", format!("http://{}", self.road(&name, "idem"))),
                    ("--orders-endpoint", format!("http://{}", self.road(&name, "orders"))),
                    ("--api-keys", keys.clone()),
                    ("--lease", millis(LEASE)),
                    ("--upstream-timeout", millis(UPSTREAM_TIMEOUT)),
                    ("--drain", millis(DRAIN)),
                ]),
            ));
        }
        all
    }

    /// Where a process says whether it is ready; the acquirer says nothing.
    pub fn admin(&self, name: &str) -> Option<SocketAddr> {
        let (kind, place) = name.rsplit_once('-')?;
        let all = match kind {
            "gateway" => &self.gateways,
            "idem" => &self.idems,
            "orders" => &self.orders,
            _ => return None,
        };
        Some(all.get(place.parse::<usize>().ok()?)?[1])
    }

    /// A gateway's own service first, then the other one, as a balancer would.
    fn servers_of(&self, road: &str) -> Vec<SocketAddr> {
        let (from, to) = road.split_once('/').expect("a road has two ends");
        let place: usize = from.rsplit('-').next().and_then(|place| place.parse().ok()).unwrap_or(0);
        let in_turn = |all: &[[SocketAddr; 2]]| {
            let count = all.len();
            (0..count).map(|step| all[(place + step) % count][0]).collect::<Vec<_>>()
        };
        match to.split_once('-') {
            _ if to == "idem" => in_turn(&self.idems),
            _ if to == "orders" => in_turn(&self.orders),
            _ if to == ACQUIRER => vec![self.acquirer],
            Some(("gateway", place)) => vec![self.gateways[place.parse::<usize>().expect("a gateway's number")][0]],
            Some(("postgres", place)) => vec![self.postgres[place.parse::<usize>().expect("a server's number")]],
            _ => unreachable!("a road that leads nowhere: {road}"),
        }
    }
}

// === helpers ===

/// Where programs are looked for: in `--bin-dir` first, then where this program is itself.
pub fn binaries(given: Option<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let own = std::env::current_exe()?;
    let beside = own.parent().map(Path::to_owned);
    Ok(given.into_iter().chain(beside).collect())
}

/// Every road but those of webhooks and between the servers of Postgres. On SQLite there are none to Postgres.
fn road_names(counts: Counts) -> Vec<String> {
    let mut all = Vec::new();
    for i in 0..counts.gateways {
        all.extend([format!("client/gateway-{i}"), format!("gateway-{i}/idem"), format!("gateway-{i}/orders")]);
    }
    for i in 0..counts.services {
        all.push(format!("orders-{i}/{ACQUIRER}"));
        if counts.services > 1 {
            for j in 0..2 {
                all.extend([format!("idem-{i}/postgres-{j}"), format!("orders-{i}/postgres-{j}")]);
            }
        }
    }
    all
}

fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect()
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
