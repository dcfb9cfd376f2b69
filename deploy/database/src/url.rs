//! Where a store is, as operators write it: `sqlite:PATH` or `postgres://…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::chain;

/// Where a store is. Parsed from `sqlite:PATH`, `postgres://…` or `postgresql://…` (several hosts accepted).
///
/// `Display` and `Debug` never show the password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file, made when it is absent.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<Config>),
}

/// Why a text is not a [`StoreUrl`]; the sentence never repeats a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// Neither of the two schemes.
    #[error("a store is sqlite:PATH or postgres://USER@HOST/DATABASE")]
    Scheme,
    /// `sqlite:` without a file.
    #[error("sqlite: needs the path of a file, as in sqlite:/var/lib/idem/store.db")]
    Path,
    /// `postgres://` that the driver does not understand.
    #[error("the postgres:// address is not valid: {0}")]
    Postgres(String),
    /// `postgres://` without a host.
    #[error("the postgres:// address names no host, as in postgres://USER@HOST/DATABASE")]
    Host,
    /// TLS to Postgres, which this build does not speak.
    #[error("sslmode=require is not supported: use a private network or a TLS proxy, with sslmode=disable or prefer")]
    Tls,
}

// === impl StoreUrl ===

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            return sqlite(path);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return postgres(text);
        }
        Err(StoreUrlError::Scheme)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(config) => write!(f, "postgres://{}{}{}", user(config), hosts(config), database(config)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn sqlite(path: &str) -> Result<StoreUrl, StoreUrlError> {
    // Other tools write sqlite:///absolute and sqlite://relative.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.ends_with('/') || path == ":memory:" {
        return Err(StoreUrlError::Path);
    }
    Ok(StoreUrl::Sqlite(PathBuf::from(path)))
}

fn postgres(text: &str) -> Result<StoreUrl, StoreUrlError> {
    let config = Config::from_str(text).map_err(|error| StoreUrlError::Postgres(chain(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(StoreUrlError::Host);
    }
    if config.get_ssl_mode() == SslMode::Require {
        return Err(StoreUrlError::Tls);
    }
    Ok(StoreUrl::Postgres(Box::new(config)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<StoreUrl>().map_or_else(|error| error.to_string(), |url| url.to_string())
    }

    #[test]
    fn both_schemes_are_read_and_passwords_are_hidden() {
        assert_eq!(shown("sqlite:data/store.db"), "sqlite:data/store.db");
        assert_eq!(shown("sqlite:///var/store.db"), "sqlite:/var/store.db");
        assert_eq!(shown("postgres://idem:se%23cret@db/idem"), "postgres://idem:***@db:5432/idem");
        assert_eq!(shown("postgresql://idem@a:1,b:2/idem"), "postgres://idem@a:1,b:2/idem");
        assert_eq!(shown("postgres://[::1]:7/idem"), "postgres://[::1]:7/idem");
        assert_eq!(shown("postgres://u@%2Frun%2Fpg/idem"), "postgres://u@%2Frun%2Fpg:5432/idem");
        let url: StoreUrl = "postgres://idem:secret@db/idem".parse().expect("valid");
        assert!(!format!("{url:?}").contains("secret"));
    }

    #[test]
    fn mistakes_are_told_in_one_sentence_without_the_password() {
        assert!(shown("mysql://u:secret@db/x").starts_with("a store is sqlite:PATH or postgres://"));
        assert!(shown("store.db").starts_with("a store is"));
        assert!(shown("sqlite:").starts_with("sqlite: needs the path"));
        assert!(shown("sqlite::memory:").starts_with("sqlite: needs the path"));
        assert!(shown("sqlite:dir/").starts_with("sqlite: needs the path"));
        assert!(shown("postgres:///idem").contains("names no host"));
        assert!(shown("postgres://u:secret@db/x?sslmode=require").starts_with("sslmode=require is not supported"));
        let bad = shown("postgres://u:secret@db:port/x");
        assert!(bad.starts_with("the postgres:// address is not valid"), "{bad}");
        assert!(!bad.contains("secret"));
    }
}
