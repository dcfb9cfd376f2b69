//! One Postgres server: its directory, its commands, its end.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use chassis::tasks::Tasks;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

/// The standby's name, by which the primary knows whom to wait for.
pub(super) const STANDBY: &str = "standby";

/// A server that does not greet within this time is down.
const GREETING: Duration = Duration::from_secs(2);

/// fsync is off for speed only: this campaign kills processes and takes no power away, and what a process has written the
/// operating system keeps. Full page writes stay on, because a killed process can leave half a page.
/// The times that a dead peer goes unnoticed are short, so that a campaign sees many failovers.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 64MB
fsync = off
full_page_writes = on
synchronous_commit = on
dynamic_shared_memory_type = mmap
wal_level = replica
max_wal_senders = 10
wal_keep_size = 256MB
max_wal_size = 512MB
hot_standby = on
wal_receiver_timeout = 3s
wal_sender_timeout = 3s
wal_retrieve_retry_interval = 300ms
log_min_messages = warning
log_line_prefix = '%m [%p] '
";

/// A server that may be running. Ended when dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    binaries: PathBuf,
    home: PathBuf,
    /// Where its log is kept in the end; the server itself may not be allowed to write there.
    logs: PathBuf,
}

// === impl Server ===

impl Server {
    /// A server without a directory yet. `home` belongs to whoever owns the server's processes.
    pub(super) fn new(name: &'static str, address: SocketAddr, binaries: &Path, home: &Path, logs: &Path) -> Self {
        Self { name, address, binaries: binaries.to_owned(), home: home.to_owned(), logs: logs.to_owned() }
    }

    /// Makes an empty primary out of nothing.
    pub(super) fn initialise(&self) -> anyhow::Result<()> {
        self.run(
            "initdb",
            &["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D", &self.data()],
        )?;
        let file = self.directory().join("postgresql.conf");
        let own = format!("{SETTINGS}port = {}\n", self.address.port());
        let before = std::fs::read_to_string(&file).context("postgresql.conf")?;
        std::fs::write(&file, before + &own).context("postgresql.conf")
    }

    /// Makes a standby of the server reached at `primary`, over what was here before.
    pub(super) fn copy_of(&self, primary: SocketAddr) -> anyhow::Result<()> {
        // Only a server that is down loses its directory.
        self.kill();
        if self.directory().exists() {
            std::fs::remove_dir_all(self.directory()).context("the directory of the old primary")?;
        }
        let connection = format!("host=127.0.0.1 port={} user=postgres application_name={STANDBY}", primary.port());
        self.run(
            "pg_basebackup",
            &["-d", &connection, "-D", &self.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync"],
        )?;
        let file = self.directory().join("postgresql.conf");
        // The last line of a name counts.
        let own =
            std::fs::read_to_string(&file).context("postgresql.conf")? + &format!("port = {}\n", self.address.port());
        std::fs::write(&file, own).context("postgresql.conf")
    }

    /// Starts it and waits until it accepts connections. Blocks, as all that runs a command here.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        let log = self.log().display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-l", &log, "-w", "-t", "30", "start"])
            .with_context(|| format!("{}: see {log}", self.name))
    }

    /// Stops it at once, as after a crash: no checkpoint, connections closed.
    pub(super) fn stop_immediately(&self) -> anyhow::Result<()> {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "-t", "30", "stop"])
    }

    /// `kill -9` of the server and of every process it has, and waits until the last is gone: none may acknowledge
    /// anything after a failover.
    pub(super) fn kill(&self) {
        let Some(postmaster) = self.postmaster() else { return };
        // First it must not start any more.
        send("STOP", &[postmaster]);
        let mut all = children_of(postmaster);
        all.push(postmaster);
        send("KILL", &all);
        let has_ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            all.iter().all(|pid| !is_alive(*pid))
        });
        if !has_ended {
            tracing::warn!(server = self.name, "some of its processes do not end");
        }
        self.clear_away();
    }

    /// What a killed server leaves behind: a segment of shared memory, named in its own file, and that file, which would
    /// keep the next one from starting for as long as nobody has waited for the dead process.
    fn clear_away(&self) {
        let file = self.directory().join("postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some(segment) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", segment]).stderr(std::process::Stdio::null()).status();
        }
        let _ = std::fs::remove_file(file);
    }

    /// Turns a standby into a primary, and waits until it is one.
    pub(super) fn promote(&self) -> anyhow::Result<()> {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-t", "30", "promote"])
    }

    pub(super) async fn client(&self, database: &str) -> anyhow::Result<Client> {
        connect(self.address, database).await
    }

    fn directory(&self) -> PathBuf {
        self.home.join(self.name)
    }

    fn log(&self) -> PathBuf {
        self.home.join(format!("{}.log", self.name))
    }

    fn data(&self) -> String {
        self.directory().display().to_string()
    }

    /// The id of the running server. Its file may outlive it, so the process must be one of Postgres in this directory.
    fn postmaster(&self) -> Option<u32> {
        let file = std::fs::read_to_string(self.directory().join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (directory == self.directory().canonicalize().ok()? && is_alive(pid)).then_some(pid)
    }

    /// The commands refuse to run as root.
    fn run(&self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let program = self.binaries.join(command);
        let mut run = if is_root() {
            let mut run = Command::new("runuser");
            run.args(["-u", "postgres", "--"]).arg(program);
            run
        } else {
            Command::new(program)
        };
        // Files, not pipes: a server that stays would hold a pipe open.
        let output = self.home.join(format!("{}-{command}.out", self.name));
        let file = std::fs::File::create(&output).context("the output of a command")?;
        let status = run
            .args(arguments)
            .current_dir(&self.home)
            .stdin(std::process::Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
            .with_context(|| format!("{command} does not start"))?;
        if !status.success() {
            bail!("{command} {}: {}", self.name, std::fs::read_to_string(&output).unwrap_or_default().trim());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop_immediately();
        self.kill();
        let _ = std::fs::copy(self.log(), self.logs.join(format!("{}.log", self.name)));
    }
}

// === helpers ===

/// Connects as the owner of everything.
pub(super) async fn connect(address: SocketAddr, database: &str) -> anyhow::Result<Client> {
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("postgres").dbname(database);
    config.connect_timeout(GREETING).application_name("faults");
    let (client, connection) = timeout(GREETING, config.connect(NoTls)).await??;
    // Ends when the client is dropped.
    Tasks::new().spawn("postgres connection", connection);
    Ok(client)
}

/// Where the newest Postgres server of this machine is.
pub(super) fn find_binaries() -> anyhow::Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    versions.sort();
    if let Some((_, newest)) = versions.pop() {
        return Ok(newest);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).find(|dir| dir.join("postgres").exists() && dir.join("initdb").exists());
    found.context("there is no Postgres server here: install the package postgresql")
}

/// Gives a directory to whoever runs the servers.
pub(super) fn give_to_owner(directory: &Path) -> anyhow::Result<()> {
    if is_root() {
        let status = Command::new("chown").arg("postgres").arg(directory).status().context("chown")?;
        ensure!(status.success(), "chown postgres {}", directory.display());
    }
    Ok(())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The processes that say so of their parent.
fn children_of(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// A process that has ended and that nobody has waited for is not alive.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// State and parent. The name before them may hold anything, so they are looked for behind its end.
fn stat(pid: u32) -> Option<(char, u32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn send(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    // Some may have ended meanwhile, and `kill` then says so.
    let _ = Command::new("kill").arg(format!("-{signal}")).args(pids).stderr(std::process::Stdio::null()).status();
}
