//! What the system is started with.

use std::{path::PathBuf, time::Duration};

use chassis::flags;
use clap::Parser;
use database::{Clock, StoreUrl};

use crate::Ports;

/// Where the stores are.
#[derive(Clone, Debug)]
pub enum Data {
    /// SQLite files in this directory, made if it is not there.
    Directory(PathBuf),
    /// One Postgres database for both services.
    Postgres(String),
}

/// What the system is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the stores are.
    pub data: Data,
    /// Which ports to take.
    pub ports: Ports,
    /// How long a holder is presumed alive.
    pub lease: Duration,
    /// How long an answer is replayed.
    pub retention: Duration,
    /// How long seats are held.
    pub hold_ttl: Duration,
    /// How long the orders service may take.
    pub upstream_timeout: Duration,
    /// How long the acquirer may take.
    pub acquirer_timeout: Duration,
    /// How long requests in flight may take to end.
    pub drain: Duration,
    /// Browsers of these origins may call.
    pub cors_origins: Vec<String>,
    /// API keys beside those of the demo: tenant and key.
    pub api_keys: Vec<(String, String)>,
    /// What one tenant may ask of the gateway.
    pub limits: gateway::Limits,
    /// A file of keys with which stored answers are encrypted.
    pub encryption_keys: Option<PathBuf>,
    /// The clock of the idempotency service's store.
    pub idem_clock: Clock,
    /// The clock of the orders service's store.
    pub orders_clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data: Data::Directory(".data".into()),
            ports: Ports::Production,
            lease: Duration::from_secs(60),
            retention: Duration::from_secs(24 * 3600),
            hold_ttl: Duration::from_secs(30 * 60),
            upstream_timeout: Duration::from_secs(25),
            acquirer_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(30),
            cors_origins: Vec::new(),
            api_keys: Vec::new(),
            limits: gateway::Limits::default(),
            encryption_keys: None,
            idem_clock: Clock::system(),
            orders_clock: Clock::system(),
        }
    }
}

impl Settings {
    /// The store of the service whose SQLite file is `name`.
    pub(crate) fn store(&self, name: &str) -> Result<StoreUrl, database::StoreUrlError> {
        match &self.data {
            Data::Directory(directory) => Ok(StoreUrl::Sqlite(directory.join(name))),
            Data::Postgres(url) => url.parse(),
        }
    }
}

/// Idem in one process: gateway, idempotency service, orders service and an acquirer to play with.
#[derive(Clone, Debug, Parser)]
#[command(name = "idem-local", version)]
pub struct Flags {
    /// Where the embedded SQLite stores are kept
    #[arg(long, env = "IDEM_LOCAL_DATA_DIR", default_value = ".data", value_name = "DIRECTORY")]
    data_dir: PathBuf,

    /// Keep everything in this Postgres database instead
    #[arg(long, env = "IDEM_LOCAL_POSTGRES", hide_env_values = true, value_name = "URL", conflicts_with = "data_dir")]
    postgres: Option<String>,

    /// Take seven ports from this one: REST N, admin N+1, idem N+2 and N+3, orders N+4 and N+5, sandbox N+6
    #[arg(long, env = "IDEM_LOCAL_PORT_BASE", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65529))]
    port_base: Option<u16>,

    /// How long a holder is presumed alive
    #[arg(long, env = "IDEM_LOCAL_LEASE", default_value = "60s", value_parser = flags::positive_duration, value_name = "DURATION")]
    lease: Duration,

    /// How long an answer is replayed
    #[arg(long, env = "IDEM_LOCAL_RETENTION", default_value = "24h", value_parser = flags::positive_duration, value_name = "DURATION")]
    retention: Duration,

    /// How long seats are held for an order
    #[arg(long, env = "IDEM_LOCAL_HOLD_TTL", default_value = "30m", value_parser = flags::positive_duration, value_name = "DURATION")]
    hold_ttl: Duration,

    /// How long the orders service may take; shorter than the lease
    #[arg(long, env = "IDEM_LOCAL_UPSTREAM_TIMEOUT", default_value = "25s", value_parser = flags::positive_duration, value_name = "DURATION")]
    upstream_timeout: Duration,

    /// How long the acquirer may take; shorter than the upstream timeout
    #[arg(long, env = "IDEM_LOCAL_ACQUIRER_TIMEOUT", default_value = "20s", value_parser = flags::positive_duration, value_name = "DURATION")]
    acquirer_timeout: Duration,

    /// How long requests in flight may take to end
    #[arg(long, env = "IDEM_LOCAL_DRAIN", default_value = "30s", value_parser = flags::duration, value_name = "DURATION")]
    drain: Duration,

    /// Origins whose browsers may call, separated by commas
    #[arg(long, env = "IDEM_LOCAL_CORS_ORIGINS", value_delimiter = ',', value_name = "ORIGINS")]
    cors_origins: Vec<String>,
}

/// Flags that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("--acquirer-timeout ({acquirer}) must be shorter than --upstream-timeout ({upstream})")]
pub struct Contradiction {
    acquirer: humantime::Duration,
    upstream: humantime::Duration,
}

impl Flags {
    /// Checks what no single part can check; the parts check the rest.
    pub fn into_settings(self) -> Result<Settings, Contradiction> {
        if self.acquirer_timeout >= self.upstream_timeout {
            return Err(Contradiction {
                acquirer: self.acquirer_timeout.into(),
                upstream: self.upstream_timeout.into(),
            });
        }
        Ok(Settings {
            data: self.postgres.map_or(Data::Directory(self.data_dir), Data::Postgres),
            ports: self.port_base.map_or(Ports::Production, Ports::From),
            lease: self.lease,
            retention: self.retention,
            hold_ttl: self.hold_ttl,
            upstream_timeout: self.upstream_timeout,
            acquirer_timeout: self.acquirer_timeout,
            drain: self.drain,
            cors_origins: self.cors_origins,
            ..Settings::default()
        })
    }
}
