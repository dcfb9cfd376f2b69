//! The whole system as separate processes, a proxy on every road between them, and a real Postgres pair or SQLite files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use chassis::tasks::Tasks;
use tokio::time::{Instant, sleep};

use crate::edge::{CampaignClock, Edge, PrimaryAddress, StoreAccess, Tenant, Windows};

pub mod clocks;
pub mod disk;
pub mod heartbeat;
pub mod incidents;
pub mod layout;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod webhooks;

use self::{
    clocks::Clocks,
    disk::Disk,
    heartbeat::Heartbeat,
    incidents::Incidents,
    layout::{ACQUIRER, Counts, Layout},
    postgres::Cluster,
    program::{Program, Start},
    proxy::{Proxy, Trouble},
    webhooks::{Mischief, Webhooks},
};

/// How long everything may take to be ready.
const READY: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often processes are looked at that should run.
const GUARD_EVERY: Duration = Duration::from_millis(300);

/// Which store a campaign runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Store {
    /// A primary with a synchronous standby; two of each service.
    Postgres,
    /// One file and one process a service.
    Sqlite,
}

/// How a world is started.
#[derive(Clone, Debug)]
pub struct WorldSettings {
    /// The store.
    pub store: Store,
    /// Where the programs are looked for, one place after the other.
    pub binaries: Vec<PathBuf>,
    /// Where the logs go.
    pub report: PathBuf,
    /// For what the relay of webhooks decides by chance.
    pub seed: u64,
    /// Clocks are going to be moved.
    pub moves_clocks: bool,
    /// How often buyers hang up.
    pub client_gone: f64,
}

/// The running system. Everything it started ends with it.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    // In this order: processes end before what they stand on.
    programs: Vec<Program>,
    cluster: Option<Cluster>,
    disk: Option<Disk>,
    layout: Layout,
    roads: Vec<Proxy>,
    webhooks: Webhooks,
    clocks: Option<Clocks>,
    incidents: Incidents,
    http: reqwest::Client,
    edge: Edge,
    _home: tempfile::TempDir,
}

// === impl World ===

impl World {
    /// Starts everything and waits until it is ready.
    pub async fn start(settings: &WorldSettings) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        let home = tempfile::Builder::new().prefix("faults-").tempdir().context("a temporary directory")?;
        let clock = CampaignClock::start();
        let (windows, incidents) = (Windows::default(), Incidents::new(clock));
        let services = if settings.store == Store::Postgres { 2 } else { 1 };
        let layout = Layout::choose(Counts { gateways: 2, services })?;
        let roads = layout.open_roads(&tasks).await?;
        let (mut cluster, mut disk) = (None, None);
        let store = match settings.store {
            Store::Postgres => {
                let made = Cluster::start(layout.postgres, &settings.report, &tasks).await?;
                let current = made.current();
                cluster = Some(made);
                StoreAccess::Postgres(PrimaryAddress::new(current))
            }
            Store::Sqlite => {
                let made = disk.insert(Disk::new(&home.path().join("disk"))?);
                StoreAccess::Sqlite { idem: made.path("idem.db"), orders: made.path("orders.db") }
            }
        };
        let webhooks = Webhooks::start(
            layout.webhooks,
            layout.gateways.iter().map(|[rest, _]| *rest).collect(),
            layout::WEBHOOK_SECRET,
            settings.seed,
            &tasks,
            windows.clone(),
            incidents.clone(),
        )
        .await?;
        let clocks = if settings.moves_clocks { Clocks::find(home.path()) } else { None };
        let tenants = write_api_keys(home.path())?;
        let edge = Edge {
            gateways: (0..2).map(|i| layout.road("client", &format!("gateway-{i}"))).collect(),
            sandbox: layout.acquirer,
            store,
            tenants,
            operator_key: "sk_ops".to_owned(),
            webhook_secret: layout::WEBHOOK_SECRET.to_owned(),
            lease: layout::LEASE,
            upstream_timeout: layout::UPSTREAM_TIMEOUT,
            hold_ttl: layout::HOLD_TTL,
            client_timeout: layout::CLIENT_TIMEOUT,
            client_gone: settings.client_gone,
            clock,
            windows,
        };
        let programs = start_programs(settings, &layout, disk.as_ref(), clocks.as_ref(), home.path(), &edge)?;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(2)).no_proxy().build()?;
        let inner =
            Inner { programs, cluster, disk, layout, roads, webhooks, clocks, incidents, http, edge, _home: home };
        let world = Self { inner: Arc::new(inner) };
        world.guard(&tasks);
        world.feel_the_machine(&tasks);
        world.until_ready().await?;
        Ok(world)
    }

    /// What buyers and the checker see of it.
    pub fn edge(&self) -> &Edge {
        &self.inner.edge
    }

    /// The process of this name.
    pub fn program(&self, name: &str) -> anyhow::Result<&Program> {
        let found = self.inner.programs.iter().find(|program| program.name() == name);
        found.with_context(|| format!("there is no process {name}"))
    }

    /// The road of this name, those between the servers of Postgres too.
    pub fn road(&self, name: &str) -> anyhow::Result<&Proxy> {
        let followings = self.inner.cluster.iter().flat_map(Cluster::followings);
        let found = self.inner.roads.iter().chain(followings).find(|road| road.name() == name);
        found.with_context(|| format!("there is no road {name}"))
    }

    /// Both servers of Postgres.
    pub fn cluster(&self) -> anyhow::Result<&Cluster> {
        self.inner.cluster.as_ref().context("there is no Postgres in this campaign")
    }

    /// The disk of the SQLite files.
    pub fn disk(&self) -> anyhow::Result<&Disk> {
        self.inner.disk.as_ref().context("there is no SQLite in this campaign")
    }

    /// The clocks, when they can be moved.
    pub fn clocks(&self) -> anyhow::Result<&Clocks> {
        self.inner.clocks.as_ref().context("clocks cannot be moved: the package faketime is not installed")
    }

    /// The relay of webhooks.
    pub fn webhooks(&self) -> &Webhooks {
        &self.inner.webhooks
    }

    /// What the world saw by itself.
    pub fn incidents(&self) -> &Incidents {
        &self.inner.incidents
    }

    /// The processes that have the SQLite files open.
    pub fn services(&self) -> Vec<&Program> {
        let has_store = |program: &&Program| program.name().starts_with("idem") || program.name().starts_with("orders");
        self.inner.programs.iter().filter(has_store).collect()
    }

    /// An outage of the acquirer for so long, in which it answers with `status`; zero ends one.
    pub async fn acquirer_outage(&self, length: Duration, status: u16) -> anyhow::Result<()> {
        let url = format!("http://{}/sandbox/outage", self.inner.layout.acquirer);
        let body = serde_json::json!({"seconds": length.as_secs_f64(), "status": status});
        self.inner.http.post(url).json(&body).send().await?.error_for_status()?;
        Ok(())
    }

    /// Ends every trouble there may be, starts what is down, and waits until everything is ready.
    pub async fn heal(&self) -> anyhow::Result<()> {
        for road in &self.inner.roads {
            road.make(Trouble::None);
        }
        self.inner.webhooks.make(Mischief::None);
        for program in &self.inner.programs {
            program.thaw();
            if let Some(clocks) = &self.inner.clocks {
                clocks.set(program.name(), 0)?;
            }
        }
        if let Some(disk) = &self.inner.disk {
            disk.free(&self.services())?;
        }
        if let Some(cluster) = &self.inner.cluster {
            cluster.heal().await?;
        }
        self.acquirer_outage(Duration::ZERO, 503).await.context("the acquirer is gone, and its ledger with it")?;
        for program in &self.inner.programs {
            program.launch()?;
        }
        self.until_ready().await
    }

    /// Waits until every process says that it is ready.
    pub async fn until_ready(&self) -> anyhow::Result<()> {
        for program in &self.inner.programs {
            self.until_one_is_ready(program.name()).await?;
        }
        Ok(())
    }

    /// Waits until one process says that it is ready.
    pub async fn until_one_is_ready(&self, name: &str) -> anyhow::Result<()> {
        let Some(admin) = self.inner.layout.admin(name) else { return Ok(()) };
        let deadline = Instant::now() + READY;
        loop {
            let answer = self.inner.http.get(format!("http://{admin}/readyz")).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} is not ready after {READY:?}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts processes again that have ended by themselves. One that finds no store at its start ends, and that is right
    /// while a fault is at work; nothing else is.
    fn guard(&self, tasks: &Tasks) {
        let inner = Arc::downgrade(&self.inner);
        tasks.spawn("guard", async move {
            while let Some(inner) = inner.upgrade() {
                for program in &inner.programs {
                    inner.look_after(program);
                }
                drop(inner);
                sleep(GUARD_EVERY).await;
            }
        });
    }

    /// Notes when the machine does not keep up.
    fn feel_the_machine(&self, tasks: &Tasks) {
        let inner = Arc::downgrade(&self.inner);
        let mut heartbeat = Heartbeat::new(self.inner.edge.clock, self.inner.edge.windows.clone());
        tasks.spawn("heartbeat", async move {
            while inner.strong_count() > 0 {
                let pids = || inner.upgrade().map(|inner| inner.programs.iter().filter_map(Program::pid).collect());
                heartbeat.beat(|| pids().unwrap_or_default()).await;
            }
        });
    }

    /// Every log of the campaign in which a task or a thread panicked.
    pub fn panics(&self, report: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(report).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
        let texts = logs.filter_map(|log| Some((log.file_name(), std::fs::read_to_string(log.path()).ok()?)));
        let found = texts.flat_map(|(name, text)| {
            let lines: Vec<String> = text.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect();
            lines.into_iter().map(move |line| format!("{}: {line}", name.display()))
        });
        found.collect()
    }
}

// === impl Inner ===

impl Inner {
    fn look_after(&self, program: &Program) {
        match program.revive() {
            Ok(None) => {}
            Ok(Some(status)) => {
                let what = format!("{} ended by itself: {status}", program.name());
                let now = self.edge.clock.now_ms();
                let is_faulty = self.edge.windows.snapshot().iter().any(|window| window.overlaps(now, now));
                match status.code() {
                    Some(1) if is_faulty && program.name() != ACQUIRER => self.incidents.note(what),
                    _ => self.incidents.violation(what),
                }
            }
            Err(error) => self.incidents.violation(format!("{} cannot be started: {error:#}", program.name())),
        }
    }
}

// === helpers ===

fn start_programs(
    settings: &WorldSettings,
    layout: &Layout,
    disk: Option<&Disk>,
    clocks: Option<&Clocks>,
    home: &Path,
    edge: &Edge,
) -> anyhow::Result<Vec<Program>> {
    let stores = |process: &str, database: &str| match (&edge.store, disk) {
        (StoreAccess::Sqlite { .. }, Some(disk)) => {
            format!("sqlite:{}", disk.path(&format!("{database}.db")).display())
        }
        _ => {
            let hosts = [0, 1].map(|i| layout.road(process, &format!("postgres-{i}")).to_string()).join(",");
            format!("postgres://postgres@{hosts}/{database}")
        }
    };
    let mut programs = Vec::new();
    for (name, binary, arguments) in layout.flags(home, &stores) {
        let found = settings.binaries.iter().map(|place| place.join(binary)).find(|place| place.exists());
        let binary = found.with_context(|| format!("{binary} is missing: run `cargo build --workspace --bins`"))?;
        let (binary, arguments) = match disk {
            Some(disk) => disk.wrap(binary, arguments),
            None => (binary, arguments),
        };
        let mut environment = vec![("RUST_LOG".to_owned(), std::env::var("RUST_LOG").unwrap_or("info".to_owned()))];
        if let Some(clocks) = clocks {
            environment.extend(clocks.environment(&name)?);
        }
        let log = settings.report.join(format!("{name}.log"));
        programs.push(Program::start(Start { name, binary, arguments, environment, log }, edge.clock)?);
    }
    Ok(programs)
}

/// Two tenants that buy, and the operator.
fn write_api_keys(home: &Path) -> anyhow::Result<Vec<Tenant>> {
    let tenants = ["shop-a", "shop-b"].map(|name| Tenant { name: name.to_owned(), api_key: format!("sk_{name}") });
    let mut entries: Vec<_> =
        tenants.iter().map(|tenant| serde_json::json!({"tenant": tenant.name, "key": tenant.api_key})).collect();
    entries.push(serde_json::json!({"tenant": "ops", "key": "sk_ops", "operator": true}));
    let file = home.join("api-keys.json");
    std::fs::write(file, serde_json::Value::from(entries).to_string()).context("the API keys")?;
    Ok(tenants.into())
}
