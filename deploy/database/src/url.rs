//! Where a store is, as operators write it: `sqlite:PATH` or `postgres://…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

mod postgres;
mod ssl;

pub use self::postgres::PostgresUrl;
pub use self::ssl::SslError;

/// Where a store is. Parsed from `sqlite:PATH`, `postgres://…` or `postgresql://…` (several hosts accepted).
///
/// `Display` and `Debug` never show the password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file, made when it is absent.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PostgresUrl>),
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
    /// What `postgres://` says of TLS does not hold together.
    #[error("the postgres:// address is not valid: {0}")]
    Ssl(#[from] SslError),
}

// === impl StoreUrl ===

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            return sqlite(path);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(Box::new(text.parse()?)));
        }
        Err(StoreUrlError::Scheme)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => fmt::Display::fmt(url, f),
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
        assert_eq!(
            shown("postgres://u:p@db/idem?sslmode=verify-full&sslrootcert=/ca.pem"),
            "postgres://u:***@db:5432/idem"
        );
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
        for query in ["sslmode=secret", "sslrootcert=secret", "sslmode=require&sslkey=secret"] {
            let bad = shown(&format!("postgres://u:secret@db/x?{query}"));
            assert!(bad.starts_with("the postgres:// address is not valid: ssl") && !bad.contains("secret"), "{bad}");
        }
        let bad = shown("postgres://u:secret@db:port/x");
        assert!(bad.starts_with("the postgres:// address is not valid"), "{bad}");
        assert!(!bad.contains("secret"));
    }
}
