//! One process of the system: started, watched, signalled, started again as it was, and ended when dropped.

use std::{
    fs::OpenOptions,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use anyhow::Context;
use tokio::time::{Instant, sleep};

use super::clocks;
use crate::edge::CampaignClock;

/// How often a process is looked at while somebody waits for it to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a process is started, each time.
#[derive(Clone, Debug)]
pub struct Start {
    /// As in the plan and the report: `idem-0`.
    pub name: String,
    /// The program.
    pub binary: PathBuf,
    /// Its flags.
    pub arguments: Vec<String>,
    /// Added to the environment.
    pub environment: Vec<(String, String)>,
    /// Both of its outputs, appended.
    pub log: PathBuf,
}

/// A process that may be running.
#[derive(Debug)]
pub struct Program {
    start: Start,
    clock: CampaignClock,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    child: Option<Child>,
    /// It is meant to run: the guard starts it again when it has ended.
    is_wanted: bool,
    is_stopped: bool,
}

// === impl Program ===

impl Program {
    /// Starts it for the first time.
    pub fn start(start: Start, clock: CampaignClock) -> anyhow::Result<Self> {
        let program = Self { start, clock, running: Mutex::default() };
        program.launch()?;
        Ok(program)
    }

    /// As in the plan and the report.
    pub fn name(&self) -> &str {
        &self.start.name
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running().child.as_ref().map(Child::id)
    }

    /// Starts it, or starts it again. One that still runs is left alone.
    pub fn launch(&self) -> anyhow::Result<()> {
        let mut running = self.running();
        running.is_wanted = true;
        if running.child.is_some() {
            return Ok(());
        }
        let name = &self.start.name;
        let log = OpenOptions::new().create(true).append(true).open(&self.start.log).context("the log of a process")?;
        let child = Command::new(&self.start.binary)
            .args(&self.start.arguments)
            .envs(self.start.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("the log of a process")?)
            .stderr(log)
            .spawn()
            .with_context(|| {
                format!("{} does not start ({name}): run `cargo build --workspace --bins`", self.start.binary.display())
            })?;
        tracing::debug!(name, pid = child.id(), at_ms = self.clock.now_ms(), "started");
        *running = Running { child: Some(child), is_wanted: true, is_stopped: false };
        Ok(())
    }

    /// `kill -9`, and waits until it is gone. It stays down until [`launch`](Self::launch).
    pub fn kill(&self) {
        let mut running = self.running();
        running.is_wanted = false;
        end(&mut running);
    }

    /// SIGTERM, and SIGKILL if it is still there after `patience`. It stays down until [`launch`](Self::launch). Gives
    /// how it ended; none when it had to be killed.
    pub async fn terminate(&self, patience: Duration) -> Option<ExitStatus> {
        self.running().is_wanted = false;
        self.signal("TERM");
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            sleep(LOOK_EVERY).await;
        }
        self.kill();
        None
    }

    /// SIGSTOP: it does nothing more, and its connections stay open.
    pub fn freeze(&self) {
        let mut running = self.running();
        running.is_stopped = true;
        signal(&running, "STOP");
    }

    /// SIGCONT: it goes on as if no time had passed. One that is not stopped is left alone.
    pub fn thaw(&self) {
        let mut running = self.running();
        if std::mem::take(&mut running.is_stopped) {
            signal(&running, "CONT");
        }
    }

    /// Starts it again when it has ended although it should run; says how it had ended.
    pub fn revive(&self) -> anyhow::Result<Option<ExitStatus>> {
        if !self.running().is_wanted {
            return Ok(None);
        }
        let ended = self.ended();
        self.launch()?;
        Ok(ended)
    }

    /// How it ended, if it has.
    fn ended(&self) -> Option<ExitStatus> {
        let mut running = self.running();
        let status = running.child.as_mut()?.try_wait().ok().flatten()?;
        end(&mut running);
        Some(status)
    }

    fn signal(&self, name: &str) {
        signal(&self.running(), name);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().expect("nobody panics while holding a process")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// SIGKILL ends a stopped process too; one that has ended is only put away.
fn end(running: &mut Running) {
    if let Some(mut child) = running.child.take() {
        let _ = child.kill();
        let _ = child.wait();
        clocks::forget(child.id());
    }
}

/// By the child's own id, which stays its own until somebody has waited for it.
fn signal(running: &Running, name: &str) {
    let Some(child) = &running.child else { return };
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    if !status.is_ok_and(|status| status.success()) {
        tracing::warn!(pid = child.id(), name, "the signal was not delivered");
    }
}
