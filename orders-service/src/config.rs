//! Every flag of the orders service, each with its environment variable.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use chassis::flags::{self, Endpoint, Secret};
use clap::{Args, Parser, Subcommand, builder::BoolishValueParser};
use database::StoreUrl;

/// The webhook secret of a laptop: everybody knows it.
const WEBHOOK_SECRET_DEMO: &str = "whsec_demo";

/// A shorter secret can be found by trying, with one webhook to try it on.
const WEBHOOK_SECRET_BYTES_MIN: usize = 16;

/// The orders service: ticket stock, orders, tickets and payments at the acquirer.
#[derive(Clone, Debug, Parser)]
#[command(name = "orders-service", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; serves when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve.
    #[command(flatten)]
    pub config: Config,
}

/// What the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Serve gRPC and the admin pages (the default)
    Serve(Box<Config>),
    /// Bring the store to the schema of this release, then exit
    Migrate(Migrate),
    /// Ask the service that runs here whether it is ready: exits with 0 if so, else with 1 and the reason
    Healthcheck(Healthcheck),
}

/// Which store to migrate.
#[derive(Clone, Debug, Args)]
pub struct Migrate {
    /// sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, env = "ORDERS_STORE", hide_env_values = true, value_name = "URL")]
    pub store: StoreUrl,
}

/// Which running service to ask.
#[derive(Clone, Debug, Args)]
pub struct Healthcheck {
    /// Where its admin pages are
    #[arg(long, env = "ORDERS_ADMIN_LISTEN", default_value = "127.0.0.1:7102", value_name = "IP:PORT")]
    pub admin_listen: SocketAddr,
}

/// How the service is run.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// Where gRPC is served
    #[arg(long, env = "ORDERS_LISTEN", default_value = "127.0.0.1:7101", value_name = "IP:PORT")]
    pub listen: SocketAddr,

    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, env = "ORDERS_ADMIN_LISTEN", default_value = "127.0.0.1:7102", value_name = "IP:PORT")]
    pub admin_listen: SocketAddr,

    /// Where orders are kept: sqlite:PATH, or postgres://USER@HOST/DATABASE (several hosts accepted; ?sslmode=verify-full&sslrootcert=FILE for TLS)
    #[arg(long, env = "ORDERS_STORE", hide_env_values = true, default_value = "sqlite:orders.db", value_name = "URL")]
    pub store: StoreUrl,

    /// Where the acquirer is, by http:// or https://
    #[arg(long, env = "ORDERS_ACQUIRER_URL", default_value = "http://127.0.0.1:8090", value_name = "URL")]
    pub acquirer_url: Endpoint,

    /// PEM file with the authorities that sign the acquirer's certificate, instead of the public ones; with https://. Read again when it changes
    #[arg(long, env = "ORDERS_ACQUIRER_CA", value_name = "FILE")]
    pub acquirer_ca: Option<PathBuf>,

    /// How long the acquirer may take; shorter than the gateway's upstream timeout
    #[arg(long, env = "ORDERS_ACQUIRER_TIMEOUT", default_value = "20s", value_parser = flags::positive_duration, value_name = "DURATION")]
    pub acquirer_timeout: Duration,

    /// The secret with which the acquirer signs its webhooks; of 16 bytes or more, else the log warns
    #[arg(long, env = "ORDERS_WEBHOOK_SECRET", hide_env_values = true, hide_default_value = true, default_value = WEBHOOK_SECRET_DEMO, value_name = "SECRET")]
    pub webhook_secret: Secret,

    /// How long seats are held for an order
    #[arg(long, env = "ORDERS_HOLD_TTL", default_value = "30m", value_parser = flags::positive_duration, value_name = "DURATION")]
    pub hold_ttl: Duration,

    /// Where payment links lead, http:// or https://; the order's id is added to it
    #[arg(long, env = "ORDERS_PAYMENT_LINK_BASE", default_value = "http://127.0.0.1:8080/pay", value_parser = flags::web_address, value_name = "URL")]
    pub payment_link_base: String,

    /// JSON file of the services that may call, with their tokens or certificates' names; read again when it changes. Without it, and without
    /// --tls-client-ca, the service listens on loopback only
    #[arg(long, env = "ORDERS_SERVICE_TOKENS", value_name = "FILE")]
    pub service_tokens: Option<PathBuf>,

    /// PEM file with the certificate of the gRPC port and its chain; with --tls-key. Without, gRPC is plaintext. Read again when it changes
    #[arg(long, env = "ORDERS_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert. Read again when it changes
    #[arg(long, env = "ORDERS_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// PEM file with the authority that signs callers' certificates: nobody is served without one. Read again when it changes
    #[arg(long, env = "ORDERS_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Serve beyond loopback without authentication
    #[arg(long, env = "ORDERS_INSECURE")]
    pub insecure: bool,

    /// Whether gRPC reflection describes what is served here; by default on loopback only
    #[arg(long, env = "ORDERS_REFLECTION", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    pub reflection: Option<bool>,

    /// How long calls may take to finish when the process is told to end
    #[arg(long, env = "ORDERS_DRAIN", default_value = "30s", value_parser = flags::duration, value_name = "DURATION")]
    pub drain: Duration,

    /// How long to go on serving after SIGTERM while balancers look away
    #[arg(long, env = "ORDERS_DRAIN_DELAY", default_value = "0s", value_parser = flags::duration, value_name = "DURATION")]
    pub drain_delay: Duration,
}

impl Config {
    /// Does the service believe webhooks signed with the secret that everybody knows?
    pub(crate) fn has_demo_secret(&self) -> bool {
        self.webhook_secret.expose() == WEBHOOK_SECRET_DEMO
    }

    /// Can the webhook secret be found by trying?
    pub(crate) fn has_short_secret(&self) -> bool {
        self.webhook_secret.expose().len() < WEBHOOK_SECRET_BYTES_MIN
    }

    /// May strangers ask what is served? Tools on a laptop may, and in production only where it is asked for.
    pub(crate) fn has_reflection(&self) -> bool {
        self.reflection.unwrap_or_else(|| self.listen.ip().to_canonical().is_loopback())
    }

    /// Are the service and its acquirer a play on one machine?
    pub(crate) fn is_all_on_this_machine(&self) -> bool {
        let acquirer = self.acquirer_url.host().trim_matches(['[', ']']);
        let is_loopback =
            acquirer.parse::<IpAddr>().map_or(acquirer == "localhost", |ip| ip.to_canonical().is_loopback());
        is_loopback && self.listen.ip().to_canonical().is_loopback()
    }
}

impl Default for Config {
    /// What an empty command line and environment say.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7101)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 7102)),
            store: StoreUrl::Sqlite("orders.db".into()),
            acquirer_url: "http://127.0.0.1:8090".parse().expect("an endpoint"),
            acquirer_ca: None,
            acquirer_timeout: Duration::from_secs(20),
            webhook_secret: Secret::new(WEBHOOK_SECRET_DEMO.to_owned()),
            hold_ttl: Duration::from_secs(30 * 60),
            payment_link_base: "http://127.0.0.1:8080/pay".to_owned(),
            service_tokens: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            insecure: false,
            reflection: None,
            drain: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_are_consistent_and_default_is_the_empty_command_line() {
        Cli::command().debug_assert();
        let parsed = Cli::try_parse_from(["orders-service"]).expect("no flag is required").config;
        // Only when nothing in the environment says otherwise.
        if std::env::vars_os().all(|(name, _)| !name.to_string_lossy().starts_with("ORDERS_")) {
            assert_eq!(format!("{parsed:?}"), format!("{:?}", Config::default()));
        }
    }

    #[test]
    fn serve_is_the_default_and_migrate_needs_a_store() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["orders-service"], words].concat());
        assert!(parse(&["--hold-ttl", "2s"]).expect("flags alone").command.is_none());
        assert!(matches!(parse(&["serve", "--hold-ttl", "2s"]).expect("serve").command, Some(Command::Serve(_))));
        assert!(matches!(
            parse(&["migrate", "--store", "sqlite:x.db"]).expect("migrate").command,
            Some(Command::Migrate(_))
        ));
        for wrong in
            [&["--hold-ttl", "0s"][..], &["--hold-ttl", "5"], &["--acquirer-url", "nowhere"], &["--store", "x"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--payment-link-base", "javascript:alert(1)"]).is_err());
        assert!(parse(&["--payment-link-base", "https://shop.example/pay"]).is_ok());
    }

    #[test]
    fn a_webhook_secret_below_sixteen_bytes_is_short() {
        for (secret, is_short) in [("x", true), ("fifteen bytes !", true), ("sixteen bytes !!", false)] {
            let config = Config { webhook_secret: Secret::new(secret.to_owned()), ..Config::default() };
            assert_eq!(config.has_short_secret(), is_short, "{secret}");
        }
    }
}
