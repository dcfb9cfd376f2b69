//! Finding the primary among the hosts, and making sure that a connection to it is safe to use.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, SimpleQueryMessage};
use tracing::info;

use super::line::Line;
use super::refusal::{ConnectError, Refusal};
use super::session::Settings;
use super::tls::Tls;
use crate::{OpenError, Options, PostgresUrl};

/// A host that has not acknowledged our bytes for so long is gone.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that says nothing for so long is asked by TCP whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// Tells whether our start-up options have reached the very server that answers; through a pooler they do not.
const DIRECT: &str = "database.direct";

/// What has no index is still read as a whole; without just-in-time compilation, which its pretended cost would set off.
const PLAN_BY_INDEX: &str = " -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
                             -c enable_mergejoin=off -c jit=off";

const CHECK: &str = "\
-- database.check_session
SELECT current_setting('synchronous_commit'), current_setting('database.direct', true)";

/// The servers one of which is the primary.
pub(super) struct Hosts {
    each: Vec<Config>,
    tls: Tls,
    /// The host that was the primary last time is tried first.
    preferred: AtomicUsize,
    is_pooled: AtomicBool,
    settings: Settings,
    /// Options for the planner.
    plan: &'static str,
    connect_timeout: Duration,
}

// === impl Hosts ===

impl Hosts {
    pub(super) fn new(url: &PostgresUrl, application_name: &str, options: &Options) -> Result<Self, OpenError> {
        Ok(Self {
            each: each(&prepared(url, application_name, options)),
            tls: Tls::open(url).map_err(|reason| OpenError::Tls { store: url.to_string(), reason })?,
            preferred: AtomicUsize::new(0),
            is_pooled: AtomicBool::new(false),
            settings: Settings {
                is_pooled: false,
                statement_timeout: options.statement_timeout,
                idle_in_transaction_timeout: options.idle_in_transaction_timeout,
            },
            plan: if options.plan_by_index { PLAN_BY_INDEX } else { "" },
            connect_timeout: options.connect_timeout,
        })
    }

    /// A connection to the first host that accepts writes. The driver bounds the TCP handshake alone; a host that
    /// accepts and says nothing is bounded by `limit`.
    pub(super) async fn connect(&self, limit: Duration) -> Result<Line, ConnectError> {
        let mut tries = Vec::new();
        let start = self.preferred.load(Ordering::Relaxed);
        for place in (0..self.each.len()).map(|step| (start + step) % self.each.len()) {
            let host = &self.each[place];
            match timeout(limit, self.greet(host)).await.unwrap_or(Err(Refusal::Silent(limit))) {
                Ok(line) => {
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(line);
                }
                Err(refusal) => tries.push((label(host), refusal)),
            }
        }
        Err(ConnectError { tries })
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.each.len()).unwrap_or(u32::MAX)
    }

    /// How long a host may take to greet somebody who waits for a connection from the pool.
    pub(super) fn greeting_limit(&self) -> Duration {
        self.connect_timeout * 2
    }

    /// How to treat statements, on any connection made so far: once there is a pooler, none is taken for direct.
    pub(super) fn settings(&self) -> Settings {
        Settings { is_pooled: self.is_pooled.load(Ordering::Relaxed), ..self.settings }
    }

    async fn greet(&self, host: &Config) -> Result<Line, Refusal> {
        let is_pooled = self.is_pooled.load(Ordering::Relaxed);
        let line = match Line::open(&self.with_options(host, is_pooled), &self.tls).await {
            Err(Refusal::Driver(error)) if !is_pooled && is_refused_option(&error) => {
                self.found_pooler("refuses start-up options");
                Line::open(host, &self.tls).await?
            }
            other => other?,
        };
        let (synchronous_commit, is_direct) = check(&line.client).await?;
        if !matches!(synchronous_commit.as_str(), "on" | "remote_write" | "remote_apply") {
            return Err(Refusal::Unsafe(format!(
                "synchronous_commit is {synchronous_commit}, so an acknowledged commit may be lost: set it to on"
            )));
        }
        if !is_direct && !self.is_pooled.load(Ordering::Relaxed) {
            self.found_pooler("drops start-up options");
        }
        Ok(line)
    }

    fn found_pooler(&self, why: &str) {
        self.is_pooled.store(true, Ordering::Relaxed);
        info!("a pooler stands before Postgres ({why}): statements are sent whole, settings with every transaction");
    }

    /// Settings of the session travel with the start-up message, which costs no round trip.
    fn with_options(&self, host: &Config, is_pooled: bool) -> Config {
        let mut config = host.clone();
        if !is_pooled {
            let Settings { statement_timeout, idle_in_transaction_timeout, .. } = &self.settings;
            config.options(format!(
                "-c {DIRECT}=on -c statement_timeout={} -c idle_in_transaction_session_timeout={}{} {}",
                statement_timeout.as_millis(),
                idle_in_transaction_timeout.as_millis(),
                self.plan,
                // The operator's own come last and win.
                host.get_options().unwrap_or_default(),
            ));
        }
        config
    }
}

// === helpers ===

/// `synchronous_commit`, and whether our start-up options are in force.
async fn check(client: &Client) -> Result<(String, bool), tokio_postgres::Error> {
    let answer = client.simple_query(CHECK).await?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let column = |place| row.and_then(|row| row.get(place)).unwrap_or_default().to_owned();
    Ok((column(0), column(1) == "on"))
}

/// What pgbouncer says to options that it does not know.
fn is_refused_option(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| error.message().contains("unsupported startup parameter"))
}

/// What holds for every host. What the operator wrote into the URL is left as it is.
fn prepared(config: &Config, application_name: &str, options: &Options) -> Config {
    let mut config = config.clone();
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_EVERY);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(3);
    }
    if config.get_application_name().is_none() {
        config.application_name(application_name);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect_timeout);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    config
}

/// One configuration per host, so that each is tried for a bounded time and the last primary first.
fn each(config: &Config) -> Vec<Config> {
    let ports = config.get_ports();
    let count = config.get_hosts().len().max(config.get_hostaddrs().len());
    let configs = (0..count).map(|place| {
        let mut one = without_hosts(config);
        match config.get_hosts().get(place) {
            Some(Host::Tcp(name)) => {
                one.host(name);
            }
            Some(Host::Unix(path)) => {
                // Nobody listens on the way, so there is no TLS on it, whatever the address asks for.
                one.host_path(path).ssl_mode(SslMode::Disable);
            }
            None => {}
        }
        if let Some(addr) = config.get_hostaddrs().get(place) {
            one.hostaddr(*addr);
        }
        if let Some(port) = ports.get(place).or(ports.first()) {
            one.port(*port);
        }
        one
    });
    configs.collect()
}

/// A copy of everything but the hosts, which the driver can only add to.
fn without_hosts(config: &Config) -> Config {
    let mut one = Config::new();
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(every) = config.get_keepalives_interval() {
        one.keepalives_interval(every);
    }
    if let Some(count) = config.get_keepalives_retries() {
        one.keepalives_retries(count);
    }
    one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    one.channel_binding(config.get_channel_binding()).target_session_attrs(config.get_target_session_attrs());
    one
}

fn label(host: &Config) -> String {
    let port = host.get_ports().first().copied().unwrap_or(5432);
    let name = match (host.get_hosts().first(), host.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, addr) => addr.map(ToString::to_string).unwrap_or_default(),
    };
    format!("{name}:{port}")
}
