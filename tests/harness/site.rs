//! A place for the four programs: every address is known before any of them runs, so they start in any order and in any number.

use std::{net::SocketAddr, time::Duration};

use serde_json::json;

use crate::{PrivateDatabase, Process, Role, Server, free_address};

/// The tenant's key.
pub const API_KEY: &str = "sk_demo_a";
/// The operator's.
pub const OPERATOR_KEY: &str = "sk_demo_ops";

/// Where everything is, and how it is started.
pub struct Site {
    /// Shared by both services.
    pub database: PrivateDatabase,
    /// The first of its kind; others are started by [`Site::start_at`].
    pub gateway: Server,
    /// The first of its kind.
    pub idem: Server,
    /// The first of its kind.
    pub orders: Server,
    /// Has no admin port.
    pub sandbox: SocketAddr,
    /// Where gateways find the idempotency service.
    pub idem_endpoint: SocketAddr,
    /// Where gateways find the orders service.
    pub orders_endpoint: SocketAddr,
    /// Where the acquirer sends its webhooks.
    pub webhooks: SocketAddr,
    /// Of every program.
    pub drain: Duration,
    /// Of every program that has it.
    pub drain_delay: Duration,
    files: tempfile::TempDir,
}

impl Site {
    /// Chooses the addresses; nothing runs yet.
    pub async fn new() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let keys =
            json!([{"tenant": "demo-a", "key": API_KEY}, {"tenant": "ops", "key": OPERATOR_KEY, "operator": true}]);
        std::fs::write(files.path().join("keys.json"), keys.to_string()).expect("the keys are written");
        let [gateway, idem, orders] = [(); 3].map(|()| Self::server());
        Self {
            database: PrivateDatabase::create().await,
            gateway,
            idem,
            orders,
            sandbox: free_address(),
            idem_endpoint: idem.listen,
            orders_endpoint: orders.listen,
            webhooks: gateway.listen,
            drain: Duration::from_secs(3),
            drain_delay: Duration::ZERO,
            files,
        }
    }

    /// Addresses for one more.
    pub fn server() -> Server {
        Server { listen: free_address(), admin: free_address() }
    }

    /// Starts the first of a kind.
    pub fn start(&self, role: Role) -> Process {
        match role {
            Role::Gateway => self.start_at(role, self.gateway),
            Role::Idem => self.start_at(role, self.idem),
            Role::Orders => self.start_at(role, self.orders),
            Role::Sandbox => self.start_at(role, Server { listen: self.sandbox, admin: self.sandbox }),
        }
    }

    /// Starts one of a kind at these addresses.
    pub fn start_at(&self, role: Role, at: Server) -> Process {
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let listen = ("--listen", at.listen.to_string());
        let admin = ("--admin-listen", at.admin.to_string());
        let drain = ("--drain", millis(self.drain));
        let delay = ("--drain-delay", millis(self.drain_delay));
        let store = ("--store", self.database.url.clone());
        let secret = ("--webhook-secret", "whsec_site".to_owned());
        let (program, flags) = match role {
            Role::Gateway => {
                let keys = ("--api-keys", self.files.path().join("keys.json").display().to_string());
                let idem = ("--idem-endpoint", format!("http://{}", self.idem_endpoint));
                let orders = ("--orders-endpoint", format!("http://{}", self.orders_endpoint));
                ("gateway", vec![listen, admin, drain, delay, keys, idem, orders])
            }
            Role::Idem => ("idem-service", vec![listen, admin, drain, delay, store]),
            Role::Orders => {
                let acquirer = ("--acquirer-url", format!("http://{}", self.sandbox));
                ("orders-service", vec![listen, admin, drain, delay, store, acquirer, secret])
            }
            Role::Sandbox => {
                let webhooks = ("--webhook-url", format!("http://{}/webhooks/acquirer", self.webhooks));
                ("acquirer-sandbox", vec![listen, drain, webhooks, secret])
            }
        };
        let flags: Vec<_> = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Process::start(program, &flags)
    }
}
