//! The idempotency service: reserve, complete, release, abandon, reclaim and renew over gRPC.
//!
//! A call goes down once and up once: `rpc` reads it, [`engine`] carries out what `idem_core::decide` decides, [`store`] keeps
//! it. [`IdemService`] puts the pieces together.

mod admin_rpc;
pub mod batch;
pub mod config;
mod console;
pub mod engine;
mod gauges;
mod health;
mod observe;
mod routes;
mod rpc;
mod scopes;
mod sealing;
mod start;
mod status;
pub mod store;
mod sweeper;
mod wire;

pub use config::Config;
pub use sealing::{Sealing, SealingError};
pub use start::StartError;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::admin::Readiness;
use chassis::listen;
use chassis::serve::{self, Drained, Listener};
use chassis::service_auth::ServiceAuth;
use chassis::shutdown::Shutdown;
use chassis::tls::ServerTls;
use database::Clock;
use tokio::net::TcpListener;

use crate::console::Access;
use crate::engine::Engine;
use crate::health::Reporting;
use crate::store::Store;

/// A scrape or a look at the console is short; nobody waits for the admin port longer than this.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// The idempotency service, bound and ready to serve.
pub struct IdemService {
    config: Config,
    auth: ServiceAuth,
    sealing: Sealing,
    tls: Option<ServerTls>,
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    listener: TcpListener,
    local_addr: SocketAddr,
    admin_listener: TcpListener,
    admin_addr: SocketAddr,
    readiness: Readiness,
}

// === impl IdemService ===

impl IdemService {
    /// Judges the configuration, binds both ports, opens the store: whatever is wrong is found before anything is served.
    /// `clock` is the store's; tests move it by hand.
    pub async fn bind(config: Config, clock: Clock) -> Result<Self, StartError> {
        let (auth, tls) = (config.authentication()?, config.tls()?);
        let listener = listen::bind(config.listen, "gRPC", "--listen")?;
        let admin_listener = listen::bind(config.admin_listen, "health, metrics and the console", "--admin-listen")?;
        let (local_addr, admin_addr) = (start::address(&listener)?, start::address(&admin_listener)?);
        let sealing = config.sealing()?;
        let store = store::open(&config.store, clock.clone(), config.store_options(), sealing.clone()).await?;
        let engine = Arc::new(Engine::new(store.clone(), clock, config.replay_cache_bytes()));
        let readiness = Readiness::new();
        health::check_store(&readiness, &store);
        Ok(Self {
            config,
            auth,
            sealing,
            tls,
            store,
            engine,
            listener,
            local_addr,
            admin_listener,
            admin_addr,
            readiness,
        })
    }

    /// Where gRPC is served.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where health, metrics and the console are served.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Whether it wants traffic: for signals, and for those who serve it beside others.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves until `shutdown` drains, then finishes what is in flight. The admin port goes last.
    pub async fn serve(self, shutdown: Shutdown) -> Drained {
        let _watched = gauges::watch(&self.store);
        let health = Reporting::new(self.store.clone(), self.readiness.clone(), shutdown.clone()).await;
        let grpc = routes::grpc(&self.engine, &self.auth, &health, self.config.has_reflection());
        let access = Access::for_listener(self.admin_addr, &self.auth, self.config.insecure);
        let admin = routes::admin(&self.engine, access, &self.readiness);
        self.readiness.follow(shutdown.clone());
        self.readiness.set(true);

        let (admin_trigger, admin_shutdown) = Shutdown::new();
        let calls = async {
            let drained =
                serve::grpc(Listener::new(self.listener, self.tls), grpc, shutdown.clone(), self.config.drain).await;
            admin_trigger.begin();
            drained
        };
        let admin = serve::http(self.admin_listener, admin, admin_shutdown, ADMIN_DRAIN);
        let chores = async {
            let purging = sweeper::run(self.store.clone(), self.config.purge_interval);
            let following = async {
                match self.config.encryption_keys {
                    Some(file) => sealing::watch(self.sealing, file).await,
                    None => std::future::pending().await,
                }
            };
            tokio::join!(purging, health.follow(), following)
        };
        tokio::select! {
            (drained, _) = async { tokio::join!(calls, admin) } => drained,
            _ = chores => unreachable!("purging and reporting go on until they are dropped"),
        }
    }
}
