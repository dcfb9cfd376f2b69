//! One process, ended when dropped.

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use tokio::{net::TcpStream, time::sleep};

use crate::generator::connection::Connection;

/// How long it may take until a process serves.
const READY: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The last lines of a log are shown when something is wrong.
const SHOWN: usize = 12;

/// A running process.
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

// === impl Program ===

impl Program {
    /// Starts it; what it says goes to a log in `home`.
    pub fn start(
        name: &str,
        binary: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        home: &Path,
    ) -> anyhow::Result<Self> {
        let path = home.join(format!("{name}.log"));
        let log = File::create(&path).context("a log")?;
        let child = Command::new(binary)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // A baseline ends when the other end of this one is closed, whatever has become of this process.
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("a log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} does not start", binary.display()))?;
        Ok(Self { name: name.to_owned(), child, log: path })
    }

    /// What it was called at its start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something listens there.
    pub async fn until_listening(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.until(address, async || TcpStream::connect(address).await.is_ok()).await
    }

    /// Waits until it says itself, at its admin address, that it serves.
    pub async fn until_ready(&mut self, admin: SocketAddr) -> anyhow::Result<()> {
        let is_ready = async || {
            let mut connection = Connection::new(admin);
            let reply = connection.exchange(b"GET /readyz HTTP/1.1\r\nhost: load\r\n\r\n").await;
            reply.is_ok_and(|reply| reply.status == 200)
        };
        self.until(admin, is_ready).await
    }

    async fn until(&mut self, address: SocketAddr, is_so: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        for _ in 0..READY.as_millis() / LOOK_EVERY.as_millis() {
            if is_so().await {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}\n{}", self.name, self.last_words());
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("{} does not serve at {address}\n{}", self.name, self.last_words())
    }

    /// Waits until it has done what it does, and gives the last line that it said.
    pub async fn finish(mut self) -> anyhow::Result<String> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            sleep(LOOK_EVERY).await;
        };
        ensure!(status.success(), "{} ended: {status}\n{}", self.name, self.last_words());
        let said = std::fs::read_to_string(&self.log).context("a log")?;
        said.lines().last().map(str::to_owned).with_context(|| format!("{} said nothing", self.name))
    }

    fn last_words(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Its promises hold without a farewell; the next workload wants the cores.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
