//! The service over real loopback ports, its clock moved by hand.

use std::net::SocketAddr;
use std::time::Duration;

use chassis::serve::Drained;
use chassis::shutdown::{Shutdown, Trigger};
use chassis::tasks::Tasks;
use clap::Parser;
use database::testing::Scratch;
use database::{Clock, Hand, StoreUrl};
use idem_proto::idem::v1::admin_service_client::AdminServiceClient;
use idem_proto::idem::v1::idempotency_service_client::IdempotencyServiceClient;
use idem_service::{Config, IdemService, StartError};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// A running service.
pub struct Server {
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    pub hand: Hand,
    pub trigger: Trigger,
    pub done: JoinHandle<Drained>,
    /// The store goes after the server.
    pub scratch: Option<Scratch>,
}

#[derive(Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    config: Config,
}

/// A configuration on free ports.
pub fn config(store: &StoreUrl, flags: &[&str]) -> Config {
    let ports = ["test", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let mut config = Cli::parse_from(ports.iter().chain(flags)).config;
    config.store = store.clone();
    config
}

// === impl Server ===

impl Server {
    pub async fn on_sqlite() -> Self {
        Self::start(database::testing::sqlite_url(), &[]).await
    }

    pub async fn on_postgres(name: &str) -> Self {
        Self::start(database::testing::postgres_url(name).await, &[]).await
    }

    pub async fn start(scratch: Scratch, flags: &[&str]) -> Self {
        let config = config(&scratch, flags);
        Self { scratch: Some(scratch), ..Self::try_start(config).await.expect("the service starts") }
    }

    pub async fn try_start(config: Config) -> Result<Self, StartError> {
        let (clock, hand) = Clock::by_hand();
        let service = IdemService::bind(config, clock).await?;
        let (grpc, admin) = (service.local_addr(), service.admin_addr());
        let (trigger, shutdown) = Shutdown::new();
        let done = Tasks::new().spawn("server", service.serve(shutdown));
        Ok(Self { grpc, admin, hand, trigger, done, scratch: None })
    }

    pub fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).expect("an address is an endpoint");
        endpoint.connect_timeout(Duration::from_secs(5)).connect_lazy()
    }

    pub fn client(&self) -> IdempotencyServiceClient<Channel> {
        IdempotencyServiceClient::new(self.channel())
    }

    pub fn admin_client(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel())
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Drains, and gives the store back so that it can be looked at.
    pub async fn stop(self) -> Option<Scratch> {
        self.trigger.begin();
        assert!(self.done.await.expect("the server does not panic").in_time);
        self.scratch
    }
}
