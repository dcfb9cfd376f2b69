//! Servers of one test's own: a Postgres to restart, and a synchronous standby to promote in its place.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::{eventually, free_address};

/// One or two servers with the database `idem`; ended when dropped.
pub struct Cluster {
    /// The first one.
    pub primary: PostgresServer,
    /// A synchronous copy of it, if there is one.
    pub standby: Option<PostgresServer>,
    _home: Arc<TempDir>,
}

/// A Postgres server.
#[derive(Clone)]
pub struct PostgresServer {
    programs: PathBuf,
    data: PathBuf,
    address: SocketAddr,
}

impl Cluster {
    /// Starts one server.
    pub async fn start() -> Self {
        let home = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        own(home.path());
        let primary =
            PostgresServer { programs: programs(), data: home.path().join("primary"), address: free_address() };
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nfsync = off\n\
             full_page_writes = off\nmax_connections = 100\n",
            primary.address.port(),
            home.path().display()
        );
        let made = primary.clone();
        blocking(move || {
            made.run(
                "initdb",
                &["-D", &made.data(), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"],
            );
            made.configure(&settings);
            made.run("pg_ctl", &["-D", &made.data(), "-l", &made.log(), "-w", "start"]);
        })
        .await;
        primary.execute("postgres", "CREATE DATABASE idem").await;
        Self { primary, standby: None, _home: home }
    }

    /// Starts two, where a commit is acknowledged when both have it.
    pub async fn start_with_standby() -> Self {
        let mut cluster = Self::start().await;
        let home = cluster.primary.data.parent().expect("it is in a directory");
        let standby = PostgresServer { programs: programs(), data: home.join("standby"), address: free_address() };
        let (from, made) = (cluster.primary.address.port().to_string(), standby.clone());
        blocking(move || {
            let copy = ["-D", &made.data(), "-h", "127.0.0.1", "-p", &from, "-U", "postgres", "-R", "-X", "stream"];
            made.run("pg_basebackup", &[&copy[..], &["-c", "fast", "--no-sync"]].concat());
            made.configure(&format!("port = {}\n", made.address.port()));
            made.run("pg_ctl", &["-D", &made.data(), "-l", &made.log(), "-w", "start"]);
        })
        .await;
        cluster.primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        cluster.primary.execute("postgres", "SELECT pg_reload_conf()").await;
        eventually("the standby is synchronous", || async {
            let count = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            (cluster.primary.number(count).await == 1).then_some(())
        })
        .await;
        cluster.standby = Some(standby);
        cluster
    }

    /// The store: `idem` on whichever server takes writes.
    pub fn url(&self) -> String {
        let standby = self.standby.as_ref().map(|standby| format!(",{}", standby.address)).unwrap_or_default();
        format!("postgres://postgres@{}{standby}/idem", self.primary.address)
    }
}

impl PostgresServer {
    /// Refuses writes from now on, on the connections that are open too.
    pub async fn demote(&self) {
        self.execute("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").await;
        self.execute("postgres", "SELECT pg_reload_conf()").await;
    }

    /// Takes writes from now on.
    pub async fn promote(&self) {
        self.execute("postgres", "SELECT pg_promote()").await;
    }

    /// Crashes it and starts it again; returns when it takes connections.
    pub async fn restart(&self) {
        let server = self.clone();
        blocking(move || {
            server.run("pg_ctl", &["-D", &server.data(), "-l", &server.log(), "-m", "immediate", "-w", "restart"]);
        })
        .await;
    }

    /// One number from a query on `idem`.
    pub async fn number(&self, query: &str) -> i64 {
        self.connect("idem").await.query_one(query, &[]).await.expect("one row").get(0)
    }

    async fn execute(&self, database: &str, sql: &str) {
        self.connect(database).await.batch_execute(sql).await.expect(sql);
    }

    async fn connect(&self, database: &str) -> tokio_postgres::Client {
        let url = format!("postgres://postgres@{}/{database}", self.address);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("the server answers");
        // Ends when the client is dropped.
        chassis::tasks::Tasks::new().spawn("postgres connection", connection);
        client
    }

    fn data(&self) -> String {
        self.data.display().to_string()
    }

    fn log(&self) -> String {
        self.data.with_extension("log").display().to_string()
    }

    fn configure(&self, settings: &str) {
        let file = self.data.join("postgresql.conf");
        let before = std::fs::read_to_string(&file).expect("initdb has written it");
        std::fs::write(&file, before + settings).expect("the settings are written");
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = as_owner(&self.programs.join(program));
        // A file and no pipe: the server inherits it, and would keep a pipe open for good.
        let said = self.data.with_extension("said");
        let out = std::fs::File::create(&said).expect("a file in a directory of our own");
        let err = out.try_clone().expect("a second handle");
        let status = command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).status();
        let said = std::fs::read_to_string(said).unwrap_or_default();
        assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}: {said}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in std::iter::once(&self.primary).chain(&self.standby) {
            let mut stop = as_owner(&server.programs.join("pg_ctl"));
            let stop = stop.args(["-D", &server.data(), "-m", "immediate", "stop"]);
            stop.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
        }
    }
}

async fn blocking(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(work).await.expect("the server's programs succeed");
}

/// Where Debian, or the path, has the server's programs.
fn programs() -> PathBuf {
    let has_server = |programs: &PathBuf| programs.join("initdb").exists() && programs.join("pg_basebackup").exists();
    let releases = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = releases.map(|release| release.path().join("bin")).filter(has_server).max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).find(has_server);
    newest.or_else(on_path).expect("a Postgres server is installed, as for the other tests")
}

/// A server refuses to run as root.
fn as_owner(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

fn own(directory: &Path) {
    if is_root() {
        let status = Command::new("chown").arg("postgres").arg(directory).status();
        assert!(status.is_ok_and(|status| status.success()), "chown postgres {}", directory.display());
    }
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("this process")) == 0
}
