//! A private Postgres with the durability of its defaults.

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use chassis::tasks::Tasks;
use tokio_postgres::{Client, Config, NoTls};

/// fsync, synchronous_commit, full_page_writes and all sizes are left as Postgres ships them. Only more may connect: the product
/// and what it is compared with stay connected side by side.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 400
log_checkpoints = off
";

/// A running server. Ended when dropped.
pub struct Server {
    address: SocketAddr,
    binaries: PathBuf,
    home: PathBuf,
}

// === impl Server ===

impl Server {
    /// Makes a server in a directory below `home`, and starts it.
    pub fn start(home: &Path, address: SocketAddr) -> anyhow::Result<Self> {
        let own = home.join("postgres");
        std::fs::create_dir(&own).context("a directory for Postgres")?;
        if is_root() {
            // The commands of Postgres refuse to run as root; whoever runs them must get here.
            command_succeeds(Command::new("chown").arg("postgres").arg(&own))?;
            command_succeeds(Command::new("chmod").arg("755").arg(home))?;
        }
        let server = Self { address, binaries: find_binaries()?, home: own };
        let data = server.data();
        server.run("initdb", &["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-D", &data])?;
        let file = server.home.join("data/postgresql.conf");
        let shipped = std::fs::read_to_string(&file).context("postgresql.conf")?;
        let sockets = server.home.display();
        let own = format!("{shipped}{SETTINGS}port = {}\nunix_socket_directories = '{sockets}'\n", address.port());
        std::fs::write(&file, own).context("postgresql.conf")?;
        let log = server.home.join("log").display().to_string();
        server.run("pg_ctl", &["-D", &data, "-l", &log, "-w", "-t", "60", "start"])?;
        Ok(server)
    }

    /// A connection to a database.
    pub async fn client(&self, database: &str) -> anyhow::Result<Client> {
        connect(&self.url(database)).await
    }

    /// Makes an empty database, over one of the same name, and says how to reach it.
    pub async fn create(&self, database: &str) -> anyhow::Result<String> {
        let client = self.client("postgres").await?;
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")).await?;
        client.batch_execute(&format!("CREATE DATABASE {database}")).await?;
        Ok(self.url(database))
    }

    /// Removes a database, and everybody in it.
    pub async fn remove(&self, database: &str) -> anyhow::Result<()> {
        let client = self.client("postgres").await?;
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")).await?;
        Ok(())
    }

    /// Writes out what is dirty now, so that it is not written during somebody's turn.
    pub async fn checkpoint(&self) -> anyhow::Result<()> {
        self.client("postgres").await?.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    /// Leaves autovacuum nothing to find, in any database.
    pub async fn vacuum_all(&self) -> anyhow::Result<()> {
        let query = "SELECT datname::TEXT FROM pg_database WHERE datallowconn";
        for row in self.client("postgres").await?.query(query, &[]).await? {
            let client = self.client(row.get(0)).await?;
            client.batch_execute("VACUUM (ANALYZE)").await?;
            // What was analysed is written down in a table too, and leaves dead rows there.
            client.batch_execute("VACUUM").await?;
        }
        Ok(())
    }

    /// How far the log of all writes is.
    pub async fn log_position(&self) -> anyhow::Result<u64> {
        let query = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::BIGINT";
        let position: i64 = self.client("postgres").await?.query_one(query, &[]).await?.get(0);
        Ok(position.unsigned_abs())
    }

    /// What was written between two positions, by kind, as Postgres itself counts it.
    pub fn log_summary(&self, from: u64, to: u64) -> anyhow::Result<String> {
        let place = |position: u64| format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff);
        let (from, to, directory) = (place(from), place(to), format!("{}/pg_wal", self.data()));
        self.run("pg_waldump", &["-p", &directory, "-s", &from, "-e", &to, "--stats=record"])?;
        std::fs::read_to_string(self.home.join("pg_waldump.out")).context("what pg_waldump said")
    }

    /// The id of its first process.
    pub fn pid(&self) -> anyhow::Result<u32> {
        let file = std::fs::read_to_string(self.home.join("data/postmaster.pid")).context("postmaster.pid")?;
        file.lines().next().and_then(|line| line.trim().parse().ok()).context("postmaster.pid names no process")
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address)
    }

    fn data(&self) -> String {
        self.home.join("data").display().to_string()
    }

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
        let output = self.home.join(format!("{command}.out"));
        let file = File::create(&output).context("the output of a command")?;
        run.args(arguments).current_dir(&self.home).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = run.status().with_context(|| format!("{command} does not start"))?;
        if !status.success() {
            bail!("{command}: {}", std::fs::read_to_string(&output).unwrap_or_default().trim());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.pid();
        if self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "-t", "30", "stop"]).is_err()
            && let Ok(pid) = pid
        {
            let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
        }
    }
}

/// A connection that ends when its client is dropped.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let mut config: Config = url.parse()?;
    // "does not exist, skipping" is no news.
    config.options("-c client_min_messages=warning");
    let (client, connection) = config.connect(NoTls).await.context("connecting to Postgres")?;
    Tasks::new().spawn("postgres connection", connection);
    Ok(client)
}

/// Where the newest Postgres server of this machine is.
fn find_binaries() -> anyhow::Result<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = installed.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let newest = versions.map(|(version, path)| (version, path.join("bin"))).filter(|(_, bin)| has_server(bin)).max();
    if let Some((_, bin)) = newest {
        return Ok(bin);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).find(|bin| has_server(bin));
    found.context("there is no Postgres server here: install the package postgresql")
}

fn has_server(bin: &Path) -> bool {
    bin.join("postgres").exists() && bin.join("initdb").exists()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn command_succeeds(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
