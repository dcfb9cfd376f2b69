//! How the service is started: every flag, its environment variable and its default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chassis::flags::{duration, positive_duration};
use chassis::listen::check_exposure;
use chassis::service_auth::ServiceAuth;
use chassis::tls::{self, ServerTls};
use clap::builder::BoolishValueParser;
use database::{Options, StoreUrl};

use crate::sealing::Sealing;
use crate::start::StartError;

/// How the idempotency service is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Where gRPC is served.
    #[arg(long, env = "IDEM_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:7001")]
    pub listen: SocketAddr,

    /// Where health, metrics and the operator's console are served.
    #[arg(long, env = "IDEM_ADMIN_LISTEN", value_name = "IP:PORT", default_value = "127.0.0.1:7002")]
    pub admin_listen: SocketAddr,

    /// Where keys are kept: sqlite:PATH, or postgres://USER@HOST/DATABASE (several hosts accepted; ?sslmode=verify-full&sslrootcert=FILE for TLS).
    #[arg(long, env = "IDEM_STORE", value_name = "URL", default_value = "sqlite:idem.db", hide_env_values = true)]
    pub store: StoreUrl,

    /// Connections to Postgres at most.
    #[arg(long, env = "IDEM_STORE_CONNECTIONS", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=500))]
    pub store_connections: u16,

    /// JSON file of keys, `[{"id", "key": "<base64 of 32 bytes>"}]`, with which stored answers are encrypted: by the first, and
    /// decrypted by any. Read again while the service runs.
    #[arg(long, env = "IDEM_ENCRYPTION_KEYS", value_name = "FILE")]
    pub encryption_keys: Option<PathBuf>,

    /// JSON file with the services that may call, their tokens or certificates' names, scopes and RPCs. Read again when it changes. Without it, and
    /// without --tls-client-ca, anybody may, on loopback only.
    #[arg(long, env = "IDEM_SERVICE_TOKENS", value_name = "FILE")]
    pub service_tokens: Option<PathBuf>,

    /// PEM file with the certificate of the gRPC port and its chain; with --tls-key. Without, gRPC is plaintext. Read again when it changes.
    #[arg(long, env = "IDEM_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert. Read again when it changes.
    #[arg(long, env = "IDEM_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// PEM file with the authority that signs callers' certificates: nobody is served without one. Read again when it changes.
    #[arg(long, env = "IDEM_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Serve without authentication on an address that others can reach.
    #[arg(long, env = "IDEM_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,

    /// Whether gRPC reflection describes what is served here; by default on loopback only.
    #[arg(long, env = "IDEM_REFLECTION", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    pub reflection: Option<bool>,

    /// How long calls in flight may take to finish after the drain has begun.
    #[arg(long, env = "IDEM_DRAIN", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain: Duration,

    /// How long to go on serving after SIGTERM, so that balancers stop sending first.
    #[arg(long, env = "IDEM_DRAIN_DELAY", value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,

    /// How often records whose retention is over are deleted.
    #[arg(long, env = "IDEM_PURGE_INTERVAL", value_name = "DURATION", default_value = "60s",
          value_parser = positive_duration)]
    pub purge_interval: Duration,

    /// Memory for stored answers, so that replays need not ask the store, in MiB; 0 for none.
    #[arg(long, env = "IDEM_REPLAY_CACHE_MIB", value_name = "MIB", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub replay_cache_mib: u32,
}

// === impl Config ===

impl Config {
    /// Who may call: judges the tokens, and whether strangers could reach the service without.
    pub fn authentication(&self) -> Result<ServiceAuth, StartError> {
        let auth = ServiceAuth::from_flags(self.service_tokens.as_deref(), self.tls_client_ca.is_some())?;
        check_exposure(self.listen, auth.is_authenticated(), self.insecure)?;
        Ok(auth)
    }

    /// How stored answers are encrypted, if they are.
    pub fn sealing(&self) -> Result<Sealing, StartError> {
        Ok(self.encryption_keys.as_deref().map_or_else(|| Ok(Sealing::off()), Sealing::load)?)
    }

    /// Whether strangers may ask what is served: tools on a laptop may, and in production only where it is asked for.
    pub(crate) fn has_reflection(&self) -> bool {
        self.reflection.unwrap_or_else(|| self.listen.ip().to_canonical().is_loopback())
    }

    /// What the gRPC port shows, and whose certificates it believes.
    pub fn tls(&self) -> Result<Option<ServerTls>, StartError> {
        Ok(tls::server(self.tls_cert.clone(), self.tls_key.clone(), self.tls_client_ca.clone())?)
    }

    /// How the store is opened.
    pub(crate) fn store_options(&self) -> Options {
        Options { pool_size: self.store_connections.into(), ..Options::default() }
    }

    /// Memory for stored answers.
    pub(crate) fn replay_cache_bytes(&self) -> u64 {
        u64::from(self.replay_cache_mib) * 1024 * 1024
    }
}

/// What `print-config` writes: one `FLAG=value` a line, as the environment would have it. Passwords are left out.
impl std::fmt::Display for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = humantime::format_duration;
        writeln!(f, "IDEM_LISTEN={}", self.listen)?;
        writeln!(f, "IDEM_ADMIN_LISTEN={}", self.admin_listen)?;
        writeln!(f, "IDEM_STORE={}", self.store)?;
        writeln!(f, "IDEM_STORE_CONNECTIONS={}", self.store_connections)?;
        // A variable that is set to nothing would name a file without a name.
        if let Some(keys) = &self.encryption_keys {
            writeln!(f, "IDEM_ENCRYPTION_KEYS={}", keys.display())?;
        }
        if let Some(tokens) = &self.service_tokens {
            writeln!(f, "IDEM_SERVICE_TOKENS={}", tokens.display())?;
        }
        let files = [("CERT", &self.tls_cert), ("KEY", &self.tls_key), ("CLIENT_CA", &self.tls_client_ca)];
        for (name, file) in files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?))) {
            writeln!(f, "IDEM_TLS_{name}={}", file.display())?;
        }
        writeln!(f, "IDEM_INSECURE={}", self.insecure)?;
        writeln!(f, "IDEM_REFLECTION={}", self.has_reflection())?;
        writeln!(f, "IDEM_DRAIN={}", time(self.drain))?;
        writeln!(f, "IDEM_DRAIN_DELAY={}", time(self.drain_delay))?;
        writeln!(f, "IDEM_PURGE_INTERVAL={}", time(self.purge_interval))?;
        write!(f, "IDEM_REPLAY_CACHE_MIB={}", self.replay_cache_mib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        config: Config,
    }

    fn parse(args: &[&str]) -> Result<Config, String> {
        let args = std::iter::once(&"idem-service").chain(args);
        Cli::try_parse_from(args).map(|cli| cli.config).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_serve_on_a_laptop() {
        let config = parse(&[]).unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.admin_listen.port()), ("127.0.0.1:7001", 7002));
        assert_eq!((config.store.to_string().as_str(), config.drain), ("sqlite:idem.db", Duration::from_secs(30)));
    }

    #[test]
    fn wrong_values_are_refused_with_the_flag_and_the_reason() {
        let table = [
            ("--store=mysql://x", "--store"),
            ("--listen=7001", "--listen"),
            ("--purge-interval=0s", "longer than 0s"),
            ("--drain=30", "unit is missing"),
            ("--store-connections=0", "--store-connections"),
            ("--unknown=1", "--unknown"),
        ];
        for (arg, sentence) in table {
            let error = parse(&[arg]).unwrap_err();
            assert!(error.contains(sentence), "{arg}: {error}");
        }
    }

    #[test]
    fn reflection_is_for_loopback_unless_it_is_asked_for() {
        let table: [(&[&str], bool); 5] = [
            (&[], true),
            (&["--listen=[::1]:7001"], true),
            (&["--listen=0.0.0.0:7001"], false),
            (&["--listen=0.0.0.0:7001", "--reflection=true"], true),
            (&["--reflection=false"], false),
        ];
        for (args, expected) in table {
            assert_eq!(parse(args).unwrap().has_reflection(), expected, "{args:?}");
        }
    }

    #[test]
    fn printed_configuration_names_every_flag_and_no_password() {
        let mut args = vec!["--store", "postgres://idem:secret@db/idem", "--service-tokens", "tokens.json"];
        args.extend(["--encryption-keys", "keys.json"]);
        args.extend(["--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "ca.pem"]);
        let printed = parse(&args).unwrap().to_string();
        assert!(printed.contains("IDEM_STORE=postgres://idem:***@db:5432/idem") && !printed.contains("secret"));
        for arg in <Cli as clap::CommandFactory>::command().get_arguments() {
            let env = arg.get_env().unwrap().to_str().unwrap();
            assert!(printed.contains(&format!("{env}=")), "{env}");
        }
    }
}
