//! What the gateway is told at start.

use crate::{
    auth::{ApiKeyError, ApiKeys},
    cors::Origin,
    limits::Limits,
};
use chassis::{
    flags::{Endpoint, RelationError, Secret, Term, check_less, duration, positive_duration},
    tls::{self, ClientTls, ServerTls, TlsError},
};
use clap::Parser;
use idem_core::{DurationError, LEASE_DEFAULT, LeaseDuration, RETENTION_DEFAULT, RetentionPeriod};
use idem_layer::Pace;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

const UPSTREAM_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);
const DRAIN_DEFAULT: Duration = Duration::from_secs(30);
const REPLAY_CACHE_MIB_DEFAULT: u32 = 32;

/// The REST gateway: makes retried requests safe and forwards them to the orders service.
///
/// Every flag also reads the environment variable shown beside it. Durations are written like 60s, 100ms or 24h.
#[derive(Parser, Debug)]
#[command(name = "gateway", version)]
pub struct Flags {
    /// Where the REST API listens. The default serves this machine only; 0.0.0.0:8080 serves every network.
    #[arg(long, env = "GATEWAY_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where /healthz, /readyz and /metrics are served. Keep it private.
    #[arg(long, env = "GATEWAY_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin_listen: SocketAddr,
    /// The idempotency service.
    #[arg(long, env = "GATEWAY_IDEM_ENDPOINT", value_name = "URL", default_value = "http://127.0.0.1:7001")]
    pub idem_endpoint: Endpoint,
    /// The orders service.
    #[arg(long, env = "GATEWAY_ORDERS_ENDPOINT", value_name = "URL", default_value = "http://127.0.0.1:7101")]
    pub orders_endpoint: Endpoint,
    /// JSON file of API keys: `[{"tenant", "sha256" or "key", "operator", "expiresAt"}]`.
    #[arg(long, env = "GATEWAY_API_KEYS", value_name = "FILE")]
    pub api_keys: Option<PathBuf>,
    /// How long a request is presumed alive before another may recover its key; also the lease of a recovery.
    #[arg(long, env = "GATEWAY_LEASE", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub lease: Duration,
    /// How long a finished answer is replayed.
    #[arg(long, env = "GATEWAY_RETENTION", value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub retention: Duration,
    /// How long the orders service may take for one request. Shorter than --lease.
    #[arg(long, env = "GATEWAY_UPSTREAM_TIMEOUT", value_name = "DURATION", default_value = "25s", value_parser = positive_duration)]
    pub upstream_timeout: Duration,
    /// How long requests in flight may take to finish after SIGTERM.
    #[arg(long, env = "GATEWAY_DRAIN", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain: Duration,
    /// How long to go on accepting requests after SIGTERM has failed /readyz, so that balancers look away first.
    #[arg(long, env = "GATEWAY_DRAIN_DELAY", value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,
    /// Memory for answers that are given again without asking the idempotency service, in MiB; 0 for none.
    #[arg(long, env = "GATEWAY_REPLAY_CACHE_MIB", value_name = "MIB", default_value_t = REPLAY_CACHE_MIB_DEFAULT)]
    pub replay_cache_mib: u32,
    /// Requests a second that one tenant may send to this gateway, in the long run; 0 for any number.
    #[arg(long, env = "GATEWAY_RATE_LIMIT", value_name = "N", default_value_t = 0)]
    pub rate_limit: u32,
    /// Requests that one tenant may send at once after a pause; 0 for as many as --rate-limit. Only with --rate-limit.
    #[arg(long, env = "GATEWAY_RATE_BURST", value_name = "N", default_value_t = 0)]
    pub rate_burst: u32,
    /// Requests of one tenant that may be in flight in this gateway; 0 for any number. Webhooks together count as one tenant.
    #[arg(long, env = "GATEWAY_IN_FLIGHT_LIMIT", value_name = "N", default_value_t = 0)]
    pub in_flight_limit: u32,
    /// Keys of one tenant that may be in progress or in doubt, over all gateways and about; 0 for any number.
    #[arg(long, env = "GATEWAY_LIVE_KEYS_LIMIT", value_name = "N", default_value_t = 0)]
    pub live_keys_limit: u32,
    /// Origins whose pages may call the API, for example https://shop.example; `*` for any.
    #[arg(long, env = "GATEWAY_CORS_ORIGINS", value_name = "ORIGINS", value_delimiter = ',')]
    pub cors_origins: Vec<Origin>,
    /// The token with which the gateway calls the idempotency service and the orders service.
    #[arg(long, env = "GATEWAY_SERVICE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub service_token: Option<Secret>,
    /// PEM file with the certificate of the REST API and its chain; with --tls-key. Without, it is plaintext HTTP. Read again when it changes.
    #[arg(long, env = "GATEWAY_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert. Read again when it changes.
    #[arg(long, env = "GATEWAY_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// PEM file with the authority that signs the certificates of both services; their endpoints are then https://. Read again when it changes.
    #[arg(long, env = "GATEWAY_UPSTREAM_TLS_CA", value_name = "FILE")]
    pub upstream_tls_ca: Option<PathBuf>,
    /// PEM file with the certificate that the gateway shows to both services, and its chain; with --upstream-tls-key.
    #[arg(long, env = "GATEWAY_UPSTREAM_TLS_CERT", value_name = "FILE")]
    pub upstream_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --upstream-tls-cert.
    #[arg(long, env = "GATEWAY_UPSTREAM_TLS_KEY", value_name = "FILE")]
    pub upstream_tls_key: Option<PathBuf>,
}

/// Everything the gateway needs to know, read and judged.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the REST API listens; port 0 for any free one.
    pub listen: SocketAddr,
    /// Where the admin pages listen; port 0 for any free one.
    pub admin_listen: SocketAddr,
    /// The idempotency service.
    pub idem_endpoint: Endpoint,
    /// The orders service.
    pub orders_endpoint: Endpoint,
    /// Who may call.
    pub api_keys: ApiKeys,
    /// How long a request is presumed alive.
    pub lease: Duration,
    /// How long an answer is replayed.
    pub retention: Duration,
    /// How long the orders service may take.
    pub upstream_timeout: Duration,
    /// How long requests in flight may take to finish at the end.
    pub drain: Duration,
    /// Memory for answers that are given again without asking the idempotency service, in MiB; 0 for none.
    pub replay_cache_mib: u32,
    /// What one tenant may ask.
    pub limits: Limits,
    /// How time passes for the idempotency service's store.
    pub pace: Pace,
    /// Origins whose pages may call.
    pub cors_origins: Vec<Origin>,
    /// The token for both services.
    pub service_token: Option<Secret>,
    /// The certificate of the REST API.
    pub tls: Option<ServerTls>,
    /// Whom to believe, and what to show, when calling both services.
    pub upstream_tls: Option<ClientTls>,
}

/// Values that contradict each other, or a file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody could call.
    #[error("--api-keys FILE is missing: give a JSON file such as [{{\"tenant\": \"demo-a\", \"key\": \"sk_…\"}}]")]
    NoApiKeys,
    /// The API keys cannot be used.
    #[error(transparent)]
    ApiKeys(#[from] ApiKeyError),
    /// Two durations in the wrong order.
    #[error(transparent)]
    Relation(#[from] RelationError),
    /// A duration out of bounds.
    #[error("--lease and --retention cannot be used: {0}")]
    Duration(#[from] DurationError),
    /// A burst of nothing.
    #[error("--rate-burst says how far --rate-limit may be exceeded for a moment: give both")]
    BurstWithoutRate,
    /// TLS flags without each other, or their files.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Any origin and particular ones.
    #[error("--cors-origins is either * or a list of origins")]
    Origins,
}

// === impl Flags ===

impl Flags {
    /// Reads the files that flags name, and judges everything together.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let api_keys = ApiKeys::load(&self.api_keys.ok_or(ConfigError::NoApiKeys)?)?;
        let config = Config {
            listen: self.listen,
            admin_listen: self.admin_listen,
            idem_endpoint: self.idem_endpoint,
            orders_endpoint: self.orders_endpoint,
            lease: self.lease,
            retention: self.retention,
            upstream_timeout: self.upstream_timeout,
            drain: self.drain,
            replay_cache_mib: self.replay_cache_mib,
            limits: Limits {
                rate: self.rate_limit,
                burst: self.rate_burst,
                in_flight: self.in_flight_limit,
                live_keys: self.live_keys_limit,
            },
            pace: Pace::own(),
            cors_origins: self.cors_origins,
            service_token: self.service_token,
            tls: tls::server(self.tls_cert, self.tls_key, None)?,
            upstream_tls: tls::client(self.upstream_tls_ca, self.upstream_tls_cert, self.upstream_tls_key)?,
            api_keys,
        };
        config.check()?;
        Ok(config)
    }
}

// === impl Config ===

impl Config {
    /// The defaults of the flags, on free loopback ports.
    pub fn new(api_keys: ApiKeys, idem_endpoint: Endpoint, orders_endpoint: Endpoint) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            listen: any_port,
            admin_listen: any_port,
            idem_endpoint,
            orders_endpoint,
            api_keys,
            lease: LEASE_DEFAULT.get(),
            retention: RETENTION_DEFAULT.get(),
            upstream_timeout: UPSTREAM_TIMEOUT_DEFAULT,
            drain: DRAIN_DEFAULT,
            replay_cache_mib: REPLAY_CACHE_MIB_DEFAULT,
            limits: Limits::default(),
            pace: Pace::own(),
            cors_origins: Vec::new(),
            service_token: None,
            tls: None,
            upstream_tls: None,
        }
    }

    /// Checks what must hold between the values. [`Gateway::bind`](crate::Gateway::bind) does it too.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.durations()?;
        let lease = Term::new("--lease", self.lease);
        let upstream_timeout = Term::new("--upstream-timeout", self.upstream_timeout);
        check_less(&upstream_timeout, &lease)?;
        // A holder that wakes late must still find its record, and be refused by it.
        check_less(&lease.plus(&upstream_timeout), &Term::new("--retention", self.retention))?;
        if self.limits.burst > 0 && self.limits.rate == 0 {
            return Err(ConfigError::BurstWithoutRate);
        }
        if self.cors_origins.len() > 1 && self.cors_origins.contains(&Origin::Any) {
            return Err(ConfigError::Origins);
        }
        Ok(())
    }

    /// Lease and retention within their bounds.
    pub(crate) fn durations(&self) -> Result<(LeaseDuration, RetentionPeriod), ConfigError> {
        let lease = LeaseDuration::new(self.lease)?;
        Ok((lease, RetentionPeriod::new(self.retention, lease)?))
    }

    /// What is allowed but probably not meant.
    pub(crate) fn warn(&self) {
        if self.drain < self.upstream_timeout {
            tracing::warn!(
                drain = %humantime::format_duration(self.drain),
                upstream_timeout = %humantime::format_duration(self.upstream_timeout),
                "--drain is shorter than --upstream-timeout: a deployment may cut requests that would have been answered"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(arguments: &[&str]) -> Result<Flags, String> {
        let all = ["gateway"].iter().chain(arguments);
        Flags::try_parse_from(all).map_err(|error| error.to_string())
    }

    fn refusal(arguments: &[&str]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"[{"tenant": "a", "key": "k"}]"#).unwrap();
        let mut flags = flags(arguments).unwrap();
        flags.api_keys = Some(file.path().to_owned());
        let error = flags.into_config().map(|_| ()).unwrap_err();
        chassis::process::sentence(&error)
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let flags = flags(&[]).unwrap();
        assert_eq!(flags.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(flags.admin_listen.to_string(), "127.0.0.1:8081");
        assert_eq!(flags.idem_endpoint.to_string(), "http://127.0.0.1:7001");
        assert_eq!(flags.orders_endpoint.to_string(), "http://127.0.0.1:7101");
        assert_eq!((flags.lease, flags.retention), (LEASE_DEFAULT.get(), RETENTION_DEFAULT.get()));
        assert_eq!((flags.upstream_timeout, flags.drain), (UPSTREAM_TIMEOUT_DEFAULT, DRAIN_DEFAULT));
        assert!(flags.cors_origins.is_empty() && flags.service_token.is_none() && flags.drain_delay.is_zero());
        assert_eq!(
            flags.into_config().map(|_| ()).unwrap_err().to_string().find("--api-keys FILE is missing"),
            Some(0)
        );
    }

    #[test]
    fn contradictions_are_refused_with_both_flags() {
        let table: &[(&[&str], &str)] = &[
            (&["--upstream-timeout", "60s"], "--upstream-timeout (1m) must be shorter than --lease (1m)"),
            (
                &["--retention", "85s"],
                "--lease (1m) plus --upstream-timeout (25s) must be shorter than --retention (1m 25s)",
            ),
            (&["--lease", "99ms", "--upstream-timeout", "50ms"], "the lease must be between 100ms and 1h, not 99ms"),
            (&["--lease", "61m"], "the lease must be between 100ms and 1h"),
            (&["--retention", "31d"], "the retention must be at most 30d"),
            (&["--retention", "10s"], "the retention (10s) must be longer than the lease (60s)"),
            (&["--rate-burst", "5"], "--rate-burst says how far --rate-limit may be exceeded"),
            (&["--cors-origins", "*,https://a.example"], "--cors-origins is either * or a list"),
        ];
        for (arguments, why) in table {
            let refused = refusal(arguments);
            assert!(refused.contains(why), "{arguments:?}: {refused}");
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_the_parser() {
        for arguments in [
            ["--listen", "8080"],
            ["--lease", "60"],
            ["--upstream-timeout", "0s"],
            ["--idem-endpoint", "ftp://idem:1"],
            ["--cors-origins", "shop.example"],
        ] {
            assert!(flags(&arguments).unwrap_err().contains("invalid value"), "{arguments:?}");
        }
        assert!(flags(&["--retantion", "1h"]).unwrap_err().contains("--retention"));
    }

    #[test]
    fn a_token_is_never_shown() {
        let flags = flags(&["--service-token", "st_secret"]).unwrap();
        assert!(!format!("{flags:?}").contains("st_secret"));
    }
}
