//! A primary and its synchronous standby: restarted, failed over, and paired again.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use chassis::tasks::Tasks;
use tokio::{
    sync::{Mutex, watch},
    task::block_in_place,
    time::{Instant, sleep},
};

use super::proxy::Proxy;

mod server;

use self::server::{STANDBY, Server, connect, find_binaries, give_to_owner};

/// The databases, one a service.
const DATABASES: [&str; 2] = ["idem", "orders"];

/// How long a standby may take to catch up.
const CATCH_UP: Duration = Duration::from_secs(15);

const LOOK_EVERY: Duration = Duration::from_millis(100);

const IS_IN_STEP: &str = "\
-- faults.is_in_step
SELECT EXISTS (SELECT 1 FROM pg_stat_replication
                WHERE application_name = $1 AND state = 'streaming' AND sync_state = 'sync')";

const END_SESSIONS: &str = "\
-- faults.end_sessions
SELECT count(pg_terminate_backend(pid))
  FROM pg_stat_activity
 WHERE datname = ANY ($1) AND application_name <> 'faults' AND pid <> pg_backend_pid()";

/// Two servers, one of which is the primary.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    servers: [Server; 2],
    /// The road on which each server, when it is the standby, follows the other.
    followings: [Proxy; 2],
    /// Who is the primary; held while that, or whether it runs, changes.
    primary: Mutex<usize>,
    current: watch::Sender<SocketAddr>,
    _home: tempfile::TempDir,
}

// === impl Cluster ===

impl Cluster {
    /// Makes both servers and both databases, and waits until the standby is synchronous. `addresses` are those of the two
    /// servers and of the roads to them on which the other one follows.
    pub async fn start(addresses: [SocketAddr; 4], logs: &Path, tasks: &Tasks) -> anyhow::Result<Self> {
        let [first, second, to_first, to_second] = addresses;
        let binaries = find_binaries()?;
        let home = tempfile::Builder::new().prefix("faults-postgres-").tempdir().context("a temporary directory")?;
        give_to_owner(home.path())?;
        let server = |name, address| Server::new(name, address, &binaries, home.path(), logs);
        let servers = [server("postgres-0", first), server("postgres-1", second)];
        let followings = [
            Proxy::start("postgres-0/replication", to_second, vec![second], tasks).await?,
            Proxy::start("postgres-1/replication", to_first, vec![first], tasks).await?,
        ];
        let current = watch::Sender::new(first);
        let inner = Inner { servers, followings, primary: Mutex::new(0), current, _home: home };
        let cluster = Self { inner: Arc::new(inner) };
        let primary = &cluster.inner.servers[0];
        block_in_place(|| primary.initialise().and_then(|()| primary.start()))?;
        let client = primary.client("postgres").await?;
        for database in DATABASES {
            client.batch_execute(&format!("CREATE DATABASE {database}")).await?;
        }
        cluster.pair(0).await?;
        Ok(cluster)
    }

    /// Where the primary listens.
    pub fn current(&self) -> watch::Receiver<SocketAddr> {
        self.inner.current.subscribe()
    }

    /// The roads between primary and standby, by the name of the one that follows.
    pub fn followings(&self) -> &[Proxy; 2] {
        &self.inner.followings
    }

    /// The road on which the standby of now follows.
    pub async fn following(&self) -> Proxy {
        let primary = self.inner.primary.lock().await;
        self.inner.followings[1 - *primary].clone()
    }

    /// Stops the primary at once and starts it again after `pause`.
    pub async fn restart(&self, pause: Duration) -> anyhow::Result<()> {
        let primary = self.inner.primary.lock().await;
        block_in_place(|| self.inner.servers[*primary].stop_immediately())?;
        sleep(pause).await;
        block_in_place(|| self.inner.servers[*primary].start())?;
        self.in_step(*primary).await
    }

    /// Kills the primary and makes the standby the primary; then makes the old one the synchronous standby of the new one.
    /// Nobody else is the primary meanwhile: every process of the old one has ended before the new one begins.
    /// Nothing happens unless the standby has everything that was acknowledged.
    pub async fn fail_over(&self) -> anyhow::Result<()> {
        let mut primary = self.inner.primary.lock().await;
        self.in_step(*primary).await.context("no failover")?;
        let (old, new) = (*primary, 1 - *primary);
        block_in_place(|| {
            self.inner.servers[old].kill();
            self.inner.servers[new].promote()
        })?;
        *primary = new;
        self.inner.current.send_replace(self.inner.servers[new].address);
        // Alone it must not wait for a standby that does not exist yet.
        self.wait_for_standby(new, false).await?;
        self.pair(new).await
    }

    /// Ends every session of the services.
    pub async fn end_sessions(&self) -> anyhow::Result<u64> {
        let primary = *self.inner.current.borrow();
        let client = connect(primary, "postgres").await?;
        let ended: i64 = client.query_one(END_SESSIONS, &[&&DATABASES[..]]).await?.get(0);
        Ok(u64::try_from(ended)?)
    }

    /// Starts what should run and is down, and waits until the standby is synchronous.
    pub async fn heal(&self) -> anyhow::Result<()> {
        for following in &self.inner.followings {
            following.make(super::proxy::Trouble::None);
        }
        let primary = self.inner.primary.lock().await;
        if self.inner.servers[*primary].client("postgres").await.is_err() {
            block_in_place(|| {
                self.inner.servers[*primary].kill();
                self.inner.servers[*primary].start()
            })?;
        }
        self.in_step(*primary).await
    }

    /// Waits until the standby is in step with the primary; makes a new one of it when it does not get there.
    async fn in_step(&self, primary: usize) -> anyhow::Result<()> {
        if self.until_in_step(primary).await.is_ok() {
            return Ok(());
        }
        tracing::warn!("the standby is made anew");
        self.wait_for_standby(primary, false).await?;
        self.pair(primary).await
    }

    /// Makes the other server a synchronous standby of `primary`.
    async fn pair(&self, primary: usize) -> anyhow::Result<()> {
        let standby = 1 - primary;
        let road = self.inner.followings[standby].address();
        block_in_place(|| {
            self.inner.servers[standby].copy_of(road)?;
            self.inner.servers[standby].start()
        })?;
        self.wait_for_standby(primary, true).await?;
        self.until_in_step(primary).await
    }

    /// Whether commits wait for the standby.
    async fn wait_for_standby(&self, primary: usize, waits: bool) -> anyhow::Result<()> {
        let name = if waits { STANDBY } else { "" };
        let client = self.inner.servers[primary].client("postgres").await?;
        client.batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await?;
        client.batch_execute("SELECT pg_reload_conf()").await?;
        Ok(())
    }

    /// Waits until the standby streams and commits wait for it, which they then have since it caught up.
    async fn until_in_step(&self, primary: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + CATCH_UP;
        loop {
            if self.is_in_step(primary).await.unwrap_or(false) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the standby is not in step after {CATCH_UP:?}");
            sleep(LOOK_EVERY).await;
        }
    }

    async fn is_in_step(&self, primary: usize) -> anyhow::Result<bool> {
        let client = self.inner.servers[primary].client("postgres").await?;
        Ok(client.query_one(IS_IN_STEP, &[&STANDBY]).await?.get(0))
    }
}
