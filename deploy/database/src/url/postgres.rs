//! A Postgres address: what the driver knows of it, and how TLS is spoken.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use credentials::ClientEnd;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::StoreUrlError;
use super::ssl::{self, Ssl};
use crate::error::chain;

/// Where a Postgres is: the driver's configuration, which this is otherwise, and how TLS is spoken.
///
/// `Display` and `Debug` never show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    config: Config,
    tls: Option<ClientEnd>,
}

// === impl PostgresUrl ===

impl PostgresUrl {
    /// What the server must prove, and what it is shown; none: TLS is not spoken.
    pub fn tls(&self) -> Option<&ClientEnd> {
        self.tls.as_ref()
    }
}

impl From<Config> for PostgresUrl {
    /// A server to which TLS is not spoken.
    fn from(mut config: Config) -> Self {
        config.ssl_mode(SslMode::Disable);
        Self { config, tls: None }
    }
}

impl Deref for PostgresUrl {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

impl DerefMut for PostgresUrl {
    fn deref_mut(&mut self) -> &mut Config {
        &mut self.config
    }
}

impl FromStr for PostgresUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (text, Ssl { mode, end }) = ssl::split(text)?;
        let mut config = Config::from_str(&text).map_err(|error| StoreUrlError::Postgres(chain(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(StoreUrlError::Host);
        }
        config.ssl_mode(mode);
        Ok(Self { config, tls: end })
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}{}{}", user(self), hosts(self), database(self))
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn user(config: &Config) -> String {
    match (config.get_user(), config.get_password()) {
        (Some(user), Some(_)) => format!("{user}:***@"),
        (Some(user), None) => format!("{user}@"),
        (None, _) => String::new(),
    }
}

fn hosts(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
    let names: Vec<String> = if config.get_hosts().is_empty() {
        config.get_hostaddrs().iter().map(ToString::to_string).collect()
    } else {
        config.get_hosts().iter().map(host).collect()
    };
    let shown = names.iter().enumerate().map(|(place, name)| {
        let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        format!("{name}:{}", port(place))
    });
    shown.collect::<Vec<_>>().join(",")
}

fn host(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string().replace('/', "%2F"),
    }
}

fn database(config: &Config) -> String {
    config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default()
}
