//! The product, as separate processes of its release build.

use std::net::SocketAddr;

use anyhow::Context;
use serde_json::json;

use super::{Stage, program::Program};
use crate::generator::connection::Connection;

/// The API keys of a run: one tenant that buys, and the operator.
pub const API_KEY: &str = "sk_load";
const OPERATOR_KEY: &str = "sk_load_ops";
/// The scope of that tenant's keys.
pub const SCOPE: &str = "rest/load";
/// Where every ticket type of a run belongs.
pub const VENUE: &str = "load";
/// So that none is ever sold out, at any speed.
const CAPACITY: u64 = 1_000_000_000;

/// What of the product is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The names of its databases begin with it.
    pub name: &'static str,
    /// How many may call: the one that buys, the operator, and others who do not.
    pub tenants: usize,
    /// Gateways, and as many idempotency services.
    pub replicas: usize,
    /// More flags for each idempotency service.
    pub idem_flags: Vec<String>,
    /// More flags for each gateway.
    pub gateway_flags: Vec<String>,
    /// More flags for the orders service.
    pub orders_flags: Vec<String>,
    /// Variables of all of them.
    pub environment: Vec<(String, String)>,
}

/// The running product. Ended when dropped.
pub struct System {
    /// REST of each gateway.
    pub gateways: Vec<SocketAddr>,
    /// gRPC of each idempotency service.
    pub idems: Vec<SocketAddr>,
    /// Every process of it, the sandbox of the acquirer last.
    pub programs: Vec<Program>,
    /// The database of keys.
    pub idem_database: String,
    /// How the first idempotency service was started, without the flags that were wanted more.
    idem_flags: Vec<String>,
}

// === impl Wanted ===

impl Wanted {
    /// One of each.
    pub fn one(name: &'static str) -> Self {
        Self {
            name,
            tenants: 2,
            replicas: 1,
            idem_flags: Vec::new(),
            gateway_flags: Vec::new(),
            orders_flags: Vec::new(),
            environment: Vec::new(),
        }
    }
}

// === impl System ===

impl System {
    /// Starts it on databases of its own.
    pub async fn start(stage: &mut Stage, wanted: &Wanted) -> anyhow::Result<Self> {
        let (name, environment) = (wanted.name, &wanted.environment[..]);
        let idem_database = format!("{name}_idem");
        let idem_store = stage.postgres.create(&idem_database).await?;
        let orders_store = stage.postgres.create(&format!("{name}_orders")).await?;
        let keys = stage.home().join(format!("{name}-api-keys.json"));
        let others = (2..wanted.tenants).map(|n| json!({"tenant": format!("t{n}"), "key": format!("sk_{n}")}));
        // Whoever looked at one after the other would find these last.
        let own = [
            json!({"tenant": "ops", "key": OPERATOR_KEY, "operator": true}),
            json!({"tenant": "load", "key": API_KEY}),
        ];
        let entries: Vec<_> = others.chain(own).collect();
        std::fs::write(&keys, json!(entries).to_string()).context("the API keys")?;

        let (sandbox, orders) = (free_port::one()?, free_port::one()?);
        let first = free_port::one()?;
        let mut gateways = vec![first];
        let (mut idems, mut idem_flags) = (Vec::new(), Vec::new());
        let mut programs = Vec::new();
        for number in 0..wanted.replicas {
            let idem = free_port::one()?;
            let mut flags = flags(&[
                ("--listen", &idem.to_string()),
                ("--admin-listen", &free_port::one()?.to_string()),
                ("--store", &idem_store),
            ]);
            if number == 0 {
                idem_flags.clone_from(&flags);
            }
            flags.extend(wanted.idem_flags.iter().cloned());
            programs
                .push(start(stage, &format!("{name}-idem-{number}"), "idem-service", &flags, environment, idem).await?);
            idems.push(idem);
        }
        let mut orders_flags = flags(&[
            ("--listen", &orders.to_string()),
            ("--admin-listen", &free_port::one()?.to_string()),
            ("--store", &orders_store),
            ("--acquirer-url", &format!("http://{sandbox}")),
            ("--webhook-secret", "whsec_load"),
        ]);
        orders_flags.extend(wanted.orders_flags.iter().cloned());
        programs
            .push(start(stage, &format!("{name}-orders"), "orders-service", &orders_flags, environment, orders).await?);
        for (number, idem) in idems.iter().enumerate() {
            let gateway = if number == 0 { first } else { free_port::one()? };
            let mut flags = flags(&[
                ("--listen", &gateway.to_string()),
                ("--admin-listen", &free_port::one()?.to_string()),
                ("--idem-endpoint", &format!("http://{idem}")),
                ("--orders-endpoint", &format!("http://{orders}")),
                ("--api-keys", &keys.display().to_string()),
            ]);
            flags.extend(wanted.gateway_flags.iter().cloned());
            programs.push(
                start(stage, &format!("{name}-gateway-{number}"), "gateway", &flags, environment, gateway).await?,
            );
            if number > 0 {
                gateways.push(gateway);
            }
        }
        let sandbox_flags = flags(&[
            ("--listen", &sandbox.to_string()),
            ("--webhook-url", &format!("http://{first}/webhooks/acquirer")),
            ("--webhook-secret", "whsec_load"),
        ]);
        programs.push(
            start(stage, &format!("{name}-acquirer"), "acquirer-sandbox", &sandbox_flags, environment, sandbox).await?,
        );
        Ok(Self { gateways, idems, programs, idem_database, idem_flags })
    }

    /// The first gateway.
    pub fn gateway(&self) -> SocketAddr {
        self.gateways[0]
    }

    /// The processes that are the product's own: not the acquirer.
    pub fn services(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| !program.name().ends_with("-acquirer"))
    }

    /// Ends the first idempotency service and starts it again where it was, with these flags more.
    pub async fn restart_idem(&mut self, stage: &Stage, more: &[String]) -> anyhow::Result<()> {
        let ended = self.programs.remove(0);
        let name = ended.name().to_owned();
        drop(ended);
        let flags: Vec<String> = self.idem_flags.iter().chain(more).cloned().collect();
        self.programs.insert(0, start(stage, &name, "idem-service", &flags, &[], self.idems[0]).await?);
        Ok(())
    }

    /// Puts ticket types on sale that are never sold out, `{prefix}-0` and so on.
    pub async fn offer(&self, prefix: &str, count: usize) -> anyhow::Result<()> {
        let mut connection = Connection::new(self.gateway());
        for number in 0..count {
            let body = json!({"venueId": VENUE, "name": "Standing", "price": {"amount": 2000, "currency": "EUR"}, "capacity": CAPACITY});
            let body = body.to_string();
            let request = format!(
                "PUT /v1/ticket-types/{prefix}-{number} HTTP/1.1\r\nhost: load\r\nauthorization: Bearer {OPERATOR_KEY}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let reply = connection.exchange(request.as_bytes()).await?;
            anyhow::ensure!(
                reply.status == 201,
                "a ticket type: {} {}",
                reply.status,
                String::from_utf8_lossy(reply.body)
            );
        }
        Ok(())
    }
}

/// Waits until it says that it serves, where it has an address for that; else until it listens.
async fn start(
    stage: &Stage,
    name: &str,
    binary: &str,
    flags: &[String],
    environment: &[(String, String)],
    listens: SocketAddr,
) -> anyhow::Result<Program> {
    let mut program = stage.program(name, binary, flags, environment)?;
    match flags.iter().position(|flag| flag == "--admin-listen").and_then(|at| flags.get(at + 1)) {
        Some(admin) => program.until_ready(admin.parse().context("an address")?).await?,
        None => program.until_listening(listens).await?,
    }
    Ok(program)
}

fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]).collect()
}

/// An idempotency service alone.
pub async fn start_idem(
    stage: &mut Stage,
    name: &str,
    store: &str,
    more: &[String],
) -> anyhow::Result<(Program, SocketAddr)> {
    let listen = free_port::one()?;
    let admin = free_port::one()?;
    let mut all =
        flags(&[("--listen", &listen.to_string()), ("--admin-listen", &admin.to_string()), ("--store", store)]);
    all.extend(more.iter().cloned());
    Ok((start(stage, name, "idem-service", &all, &[], listen).await?, listen))
}
