//! The REST gateway: makes retried requests safe and forwards them to the orders service.
//!
//! A request goes trace → authentication → idempotency layer → route → orders service, and back. What did not finish is
//! settled by whoever retries ([`recovery`]) or, when nobody does, by the [`reconciler`]; both ask the orders service, and all
//! three render its answers with the same function ([`wire`]).

mod auth;
mod body;
mod config;
mod cors;
mod error;
mod limits;
mod orders;
mod pages;
mod reconciler;
mod recovery;
mod routes;
mod wire;

pub use auth::{ApiKeyEntry, ApiKeyError, ApiKeySecret, ApiKeys};
pub use config::{Config, ConfigError, Flags};
pub use cors::{Origin, OriginError};
pub use limits::Limits;
pub use orders::ServiceTokenError;

use axum::Router;
use chassis::{
    admin::{self, Readiness},
    listen::{self, BindError},
    serve::{self, Drained},
    shutdown::Shutdown,
    tasks::Tasks,
    telemetry::observe_with,
    tls::ServerTls,
    trace,
};
use futures::{FutureExt as _, future::BoxFuture};
use idem_client::{IdemClient, ServiceToken};
use idem_layer::{Hooks, Idempotency, Settings};
use limits::{Limiter, live_keys};
use orders::{Orders, OrdersError};
use reconciler::Reconciler;
use recovery::Recovery;
use std::{io, net::SocketAddr, time::Duration};
use tokio::{net::TcpListener, time::Instant};

/// A bound gateway, about to serve.
pub struct Gateway {
    listener: TcpListener,
    tls: Option<ServerTls>,
    admin_listener: TcpListener,
    router: Router,
    reconciler: Reconciler,
    /// Only when live keys are limited.
    live_keys: Option<live_keys::Watch>,
    /// Operations whose client may be gone, and keys that are being settled.
    work: Tasks,
    readiness: Readiness,
    drain: Duration,
}

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The service token cannot be sent.
    #[error(transparent)]
    ServiceToken(#[from] ServiceTokenError),
    /// The orders service cannot be called under this name.
    #[error("--orders-endpoint cannot be used: {0}")]
    Orders(idem_client::EndpointError),
    /// The idempotency service cannot be called under this name.
    #[error("--idem-endpoint cannot be used")]
    Idem(#[from] idem_client::ConnectError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A bound socket does not say where it is.
    #[error("a listening socket does not say its address")]
    Address(#[source] io::Error),
}

// === impl Gateway ===

impl Gateway {
    /// Judges the configuration and binds both ports; nothing is served yet, and neither service needs to be there. Call inside
    /// a runtime.
    pub fn bind(config: Config) -> Result<Self, StartError> {
        config.check()?;
        config.warn();
        let (lease, retention) = config.durations()?;
        let (token, tls) = (config.service_token.as_ref(), config.upstream_tls.clone());
        let orders = Orders::new(&config.orders_endpoint, token, tls, config.upstream_timeout)?;
        let idem = idem_client(&config)?;
        let recovery = Recovery::new(orders.clone());
        let work = Tasks::new();
        let settings = Settings {
            replay_bytes: u64::from(config.replay_cache_mib) * 1024 * 1024,
            pace: config.pace.clone(),
            ..Settings::new(lease, retention, config.upstream_timeout, hooks(work.clone()))
        };
        let listener = listen::bind(config.listen, "the REST API", "--listen")?;
        let admin_listener = listen::bind(config.admin_listen, "the admin pages", "--admin-listen")?;
        let idempotency = Idempotency::new(settings, idem.clone(), recovery.clone());
        let limiter = (!config.limits.are_off()).then(|| Limiter::new(config.limits));
        let live_keys = limiter.clone().filter(|_| config.limits.live_keys > 0);
        let live_keys = live_keys.map(|limiter| live_keys::Watch { limiter, idem: idem.clone() });
        let router = routes::router(routes::Parts {
            api_keys: config.api_keys,
            limiter,
            cors_origins: config.cors_origins,
            idempotency,
            orders,
            idem: idem.clone(),
        });
        let reconciler = Reconciler { idem, recovery, lease, upstream_timeout: config.upstream_timeout };
        let readiness = Readiness::new();
        let tls = config.tls;
        Ok(Self { listener, tls, admin_listener, router, reconciler, live_keys, work, readiness, drain: config.drain })
    }

    /// Where the API is served; the port that was found when 0 was asked for.
    pub fn local_addr(&self) -> Result<SocketAddr, StartError> {
        self.listener.local_addr().map_err(StartError::Address)
    }

    /// Where the admin pages are served.
    pub fn admin_addr(&self) -> Result<SocketAddr, StartError> {
        self.admin_listener.local_addr().map_err(StartError::Address)
    }

    /// The readiness of the gateway, for the signals of the process. It says nothing about the services behind it: requests that
    /// need none of them go on working, and the others are refused in good order.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves until the shutdown drains, then finishes what is running for at most `--drain`: requests, operations whose client
    /// has gone, and keys that are being settled.
    pub async fn serve(self, shutdown: Shutdown) -> Drained {
        let Self { listener, tls, admin_listener, router, reconciler, live_keys, work, readiness, drain } = self;
        let pages = Tasks::new();
        // An alert looks for it: a counter that first appears as one has not risen for whoever reads it.
        metrics::counter!("gateway_reconciler_failures_total").increment(0);
        let running = work.clone();
        let _watched = observe_with(Duration::ZERO, move || {
            metrics::gauge!("gateway_operations_running").set(running.len() as f64);
            std::future::ready(())
        });
        // The admin pages outlive the drain, so that it can be watched.
        let (over, pages_shutdown) = Shutdown::new();
        let admin = serve::http(admin_listener, admin::router(readiness.clone()), pages_shutdown, Duration::ZERO);
        drop(pages.spawn("admin pages", admin));
        drop(pages.spawn("reconciler", reconciler.run(work.clone(), shutdown.clone())));
        if let Some(watch) = live_keys {
            drop(pages.spawn("live keys", watch.run(shutdown.clone())));
        }
        readiness.follow(shutdown.clone());
        readiness.set(true);

        let draining = shutdown.draining();
        let until = pages.spawn("drain deadline", async move {
            draining.await;
            Instant::now() + drain
        });
        let drained = serve::http(serve::Listener::new(listener, tls), router, shutdown, drain).await;
        let until = until.await.unwrap_or_else(|_| Instant::now());
        let in_time = tokio::time::timeout_at(until, work.wait()).await.is_ok();
        if !in_time {
            tracing::warn!(tasks = work.len(), "drain time is over: unfinished keys are left to recovery");
        }
        over.begin();
        pages.wait().await;
        Drained { in_time: drained.in_time && in_time }
    }
}

impl From<OrdersError> for StartError {
    fn from(error: OrdersError) -> Self {
        match error {
            OrdersError::Token(error) => Self::ServiceToken(error),
            OrdersError::Endpoint(error) => Self::Orders(error),
        }
    }
}

fn idem_client(config: &Config) -> Result<IdemClient, StartError> {
    let token = config.service_token.as_ref().map(|token| ServiceToken::new(token.expose()));
    let token = token.transpose().map_err(|_| ServiceTokenError)?;
    let endpoint = config.idem_endpoint.to_string();
    Ok(IdemClient::builder(endpoint)
        .token(token)
        .tls(config.upstream_tls.clone())
        .trace_with(trace::inject)
        .connect_lazy()?)
}

/// Runs an operation, which counts as its tenant's request until it ends.
fn spawn(work: &Tasks, operation: BoxFuture<'static, ()>) {
    match limits::slot() {
        None => drop(work.spawn("operation", operation)),
        Some(slot) => drop(work.spawn("operation", operation.map(|()| drop(slot)))),
    }
}

/// Operations run in `work`, and in the trace of their request.
fn hooks(work: Tasks) -> Hooks {
    Hooks::new(move |operation| spawn(&work, operation))
        .trace_id(trace::current_trace_id)
        .traceparent(|| trace::current_traceparent().unwrap_or_default())
        .link_to(trace::link_to)
}
