//! The orders service: ticket stock, orders, tickets and payments at the acquirer.
//!
//! A purchase is `place_order` → `pay`: seats are held and committed, the payment is recorded and committed, the acquirer is asked to
//! charge under the payment's id, and what it says is settled in one more transaction. None spans a call to the acquirer. Whatever is
//! cut off in between is found again by `resolve` (somebody asks), `watch` (nobody does) or `webhook` (the acquirer tells), and all of
//! them end in `settle`. `order` and `payment` hold the decisions, without time or I/O; `store` holds the SQL.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use chassis::{
    admin::{self, Readiness},
    listen,
    serve::{self, Drained},
    service_auth::{ServiceAuth, ServiceAuthError},
    shutdown::Shutdown,
    tasks::Tasks,
    tls::{self, ServerTls, TlsError},
};
use database::{Clock, Database, Migrated, OpenError, Options, StoreUrl};
use idem_proto::{DESCRIPTORS, orders::v1::orders_service_server::OrdersServiceServer};
use tokio::{net::TcpListener, time::Instant};
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::{
    acquirer::{
        Acquirer,
        http::{ClientError, HttpAcquirer},
    },
    operation_page::OperationPage,
    rpc::Rpc,
    shop::{Settings, Shop},
};

pub mod acquirer;
mod allotment;
mod background;
mod begin_payment;
mod begin_payments;
mod cancel_order;
mod catalogue;
mod check_in;
mod conclude;
pub mod config;
mod confirm_order;
mod entry;
mod error;
#[cfg(all(test, debug_assertions))]
mod fault_points;
mod gauges;
mod holds;
pub mod money;
pub mod operation_id;
mod operation_page;
pub mod order;
pub mod outcome;
mod pay;
pub mod payment;
mod payment_link;
mod place_order;
mod place_orders;
mod receive_events;
mod refund;
mod request;
mod resolve;
mod rpc;
#[cfg(feature = "sabotage")]
mod sabotage;
mod settle;
mod settle_payments;
mod shop;
mod signature;
mod status;
mod stock;
mod store;
pub mod timestamp;
mod trip;
mod watch;
mod webhook;
mod wire;

pub use config::Config;

// The scripted acquirer of the tests names this crate from outside.
#[cfg(test)]
extern crate self as orders_service;

/// Readiness of the store is asked for by this name.
const STORE_CHECK: &str = "store";

/// How long a call waits for a connection when all are at work: as long as a burst of buyers on one ticket type may take, one after the
/// other. A server that is away is told apart sooner, by its refused or silent connections.
const POOL_WAIT: Duration = Duration::from_secs(5);

/// A bound orders service, about to serve.
pub struct OrdersService {
    listener: TcpListener,
    admin_listener: TcpListener,
    shop: Shop,
    auth: ServiceAuth,
    operation_page: OperationPage,
    has_reflection: bool,
    tls: Option<ServerTls>,
    readiness: Readiness,
}

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The service-tokens file is no good.
    #[error(transparent)]
    Tokens(#[from] ServiceAuthError),
    /// The TLS flags, or their files, are no good.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It would serve strangers.
    #[error(transparent)]
    Exposure(#[from] listen::ExposureError),
    /// Anybody could sign a webhook, and webhooks come in through the public gateway.
    #[error(
        "--webhook-secret is missing: the demo secret is known to everybody, so it is good only while --listen and --acquirer-url are on this machine"
    )]
    DemoSecret,
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] listen::BindError),
    /// A bound socket does not say where it is.
    #[error("a listening socket does not say its address")]
    Address(#[source] io::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The client for the acquirer cannot be built.
    #[error(transparent)]
    Acquirer(#[from] ClientError),
}

/// Brings a store to the schema of this release.
pub async fn migrate(store: &StoreUrl) -> Result<Migrated, OpenError> {
    Database::migrate(store, &store::SCHEMA).await
}

impl OrdersService {
    /// Checks the configuration, opens the store and binds both ports; nothing is served yet.
    pub async fn bind(config: Config, clock: Clock) -> Result<Self, StartError> {
        let connect_timeout = config.acquirer_timeout.min(Duration::from_secs(2));
        let acquirer = HttpAcquirer::new(&config.acquirer_url, config.acquirer_ca.clone(), connect_timeout)?;
        Self::bind_with(config, clock, Arc::new(acquirer)).await
    }

    /// Like [`bind`](Self::bind), with another way to the acquirer than `--acquirer-url`.
    pub async fn bind_with(config: Config, clock: Clock, acquirer: Arc<dyn Acquirer>) -> Result<Self, StartError> {
        let auth = ServiceAuth::from_flags(config.service_tokens.as_deref(), config.tls_client_ca.is_some())?;
        let tls = tls::server(config.tls_cert.clone(), config.tls_key.clone(), config.tls_client_ca.clone())?;
        listen::check_exposure(config.listen, auth.is_authenticated(), config.insecure)?;
        if config.has_demo_secret() {
            if !config.is_all_on_this_machine() {
                return Err(StartError::DemoSecret);
            }
            tracing::warn!("webhooks are believed with the demo secret, which everybody knows: set --webhook-secret");
        } else if config.has_short_secret() {
            tracing::warn!(
                "--webhook-secret has less than 16 bytes and can be found by trying: take a random one, such as of `openssl rand -hex 32`"
            );
        }
        let listener = listen::bind(config.listen, "the orders service", "--listen")?;
        let admin_listener = listen::bind(config.admin_listen, "the admin pages", "--admin-listen")?;
        let options = Options { pool_wait: POOL_WAIT, plan_by_index: true, ..Options::default() };
        let store = Database::open(&config.store, &store::SCHEMA, clock, options).await?;
        let readiness = Readiness::new();
        let pinged = store.clone();
        readiness.check(STORE_CHECK, move || {
            let pinged = pinged.clone();
            async move { pinged.ping().await.map_err(|error| error.to_string()) }
        });
        let has_reflection = config.has_reflection();
        let settings = Settings {
            hold_ttl: config.hold_ttl,
            acquirer_timeout: config.acquirer_timeout,
            webhook_secret: config.webhook_secret.expose().as_bytes().to_vec(),
            payment_link_base: config.payment_link_base,
        };
        let shop = Shop::new(store, acquirer, settings);
        let admin_addr = admin_listener.local_addr().map_err(StartError::Address)?;
        let operation_page = OperationPage::new(shop.clone(), auth.clone(), admin_addr, config.insecure);
        Ok(Self { listener, admin_listener, shop, auth, operation_page, has_reflection, tls, readiness })
    }

    /// Where gRPC is served; the port that was found when 0 was asked for.
    pub fn local_addr(&self) -> Result<SocketAddr, StartError> {
        self.listener.local_addr().map_err(StartError::Address)
    }

    /// Where the admin pages are served.
    pub fn admin_addr(&self) -> Result<SocketAddr, StartError> {
        self.admin_listener.local_addr().map_err(StartError::Address)
    }

    /// The readiness of this service, for the signals of the process.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves until the shutdown drains, then finishes what is running for at most `drain`. Work whose caller has gone is waited for too.
    pub async fn serve(self, shutdown: Shutdown, drain: Duration) -> Drained {
        let (work, pages) = (Tasks::new(), Tasks::new());
        let (health_reporter, health) = tonic_health::server::health_reporter();
        health_reporter.set_serving::<OrdersServiceServer<Rpc>>().await;
        // For whoever restarts processes: serving as long as the process answers.
        health_reporter.set_service_status("liveness", ServingStatus::Serving).await;
        let orders = OrdersServiceServer::new(Rpc::new(self.shop.clone(), work.clone()));
        let routes = Routes::new(orders.max_decoding_message_size(serve::MESSAGE_MAX)).add_service(health);
        let routes = if self.has_reflection { reflect(routes) } else { routes };
        let router = serve::grpc_router(routes, &self.auth, status::DOMAIN);

        // The admin pages outlive the drain, so that it can be watched.
        let (over, pages_shutdown) = Shutdown::new();
        let _watched = gauges::watch(&self.shop);
        let routes = admin::router(self.readiness.clone()).merge(self.operation_page.router());
        let admin = serve::http(self.admin_listener, routes, pages_shutdown, Duration::ZERO);
        drop(pages.spawn("admin pages", admin));
        background::start(&self.shop, &work, &shutdown);
        self.readiness.follow(shutdown.clone());
        self.readiness.set(true);

        let draining = shutdown.draining();
        drop(pages.spawn("health", async move {
            draining.await;
            health_reporter.set_not_serving::<OrdersServiceServer<Rpc>>().await;
        }));
        let end = shutdown.draining();
        let deadline = pages.spawn("drain deadline", async move {
            end.await;
            Instant::now() + drain
        });
        let drained = serve::grpc(serve::Listener::new(self.listener, self.tls), router, shutdown, drain).await;
        let until = deadline.await.unwrap_or_else(|_| Instant::now());
        let in_time = tokio::time::timeout_at(until, work.wait()).await.is_ok();
        if !in_time {
            tracing::warn!(tasks = work.len(), "drain time is over: work is left to be resumed from its rows");
        }
        over.begin();
        pages.wait().await;
        Drained { in_time: drained.in_time && in_time }
    }
}

/// Both versions of reflection, since half of the tools in use only know the older one.
fn reflect(routes: Routes) -> Routes {
    let described = || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    routes
        .add_service(described().build_v1().expect("the descriptors are compiled in"))
        .add_service(described().build_v1alpha().expect("the descriptors are compiled in"))
}
