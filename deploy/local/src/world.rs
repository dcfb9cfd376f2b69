//! The four parts, bound first and then served, and ended in the order in which requests flow.

use std::{fs, future::Future, time::Duration};

use acquirer_sandbox::Sandbox;
use anyhow::Context;
use chassis::{
    flags::Endpoint,
    listen,
    shutdown::{Shutdown, Trigger},
    tasks::Tasks,
};
use database::Clock;
use gateway::{ApiKeyEntry, ApiKeySecret, ApiKeys, Gateway};
use idem_layer::Pace;
use idem_service::IdemService;
use orders_service::OrdersService;
use tokio::{task::JoinHandle, time::Instant};

use crate::{Addresses, Data, Ports, Settings, demo};

/// The running system.
pub struct World {
    addresses: Addresses,
    tasks: Tasks,
    /// In the order in which they must end: nobody is left without those it calls.
    parts: Vec<Part>,
}

/// One part, on its own task, with its own trigger.
struct Part {
    trigger: Trigger,
    served: JoinHandle<()>,
}

impl World {
    /// Refuses settings that contradict each other, before a port is bound or a store is opened.
    pub fn check(settings: &Settings) -> anyhow::Result<()> {
        let ports = settings.ports.addresses();
        gateway_config(settings, &ports, ports.idem, ports.orders)?.check()?;
        if let Ports::Production | Ports::From(_) = settings.ports {
            // Each part would name a flag of its own; here there is only one.
            for (address, what) in ports.named() {
                drop(listen::bind(address, what, "--port-base")?);
            }
        }
        Ok(())
    }

    /// Binds everything, then serves it; returns when every part answers.
    pub async fn start(settings: Settings) -> anyhow::Result<Self> {
        if let Data::Directory(directory) = &settings.data {
            fs::create_dir_all(directory)
                .with_context(|| format!("the data directory {} cannot be made", directory.display()))?;
        }
        let ports = settings.ports.addresses();
        let sandbox = Sandbox::bind(acquirer_sandbox::Config {
            listen: ports.sandbox,
            drain: settings.drain,
            ..acquirer_sandbox::Config::default()
        })?;
        let idem = IdemService::bind(idem_config(&settings, &ports)?, settings.idem_clock.clone()).await?;
        let orders =
            OrdersService::bind(orders_config(&settings, &ports, sandbox.local_addr())?, settings.orders_clock.clone())
                .await?;
        let gateway = Gateway::bind(gateway_config(&settings, &ports, idem.local_addr(), orders.local_addr()?)?)?;
        let addresses = Addresses {
            rest: gateway.local_addr()?,
            gateway_admin: gateway.admin_addr()?,
            idem: idem.local_addr(),
            idem_admin: idem.admin_addr(),
            orders: orders.local_addr()?,
            orders_admin: orders.admin_addr()?,
            sandbox: sandbox.local_addr(),
        };
        sandbox.set_webhook_url(&format!("http://{}/webhooks/acquirer", addresses.rest))?;

        let mut world = Self { addresses, tasks: Tasks::new(), parts: Vec::new() };
        let drain = settings.drain;
        world.serve("gateway", |shutdown| {
            gateway.readiness().follow(shutdown.clone());
            async move {
                gateway.serve(shutdown).await;
            }
        });
        world.serve("orders-service", |shutdown| {
            orders.readiness().follow(shutdown.clone());
            async move {
                orders.serve(shutdown, drain).await;
            }
        });
        world.serve("idem-service", |shutdown| {
            idem.readiness().follow(shutdown.clone());
            async move {
                idem.serve(shutdown).await;
            }
        });
        world.serve("acquirer-sandbox", |shutdown| async move {
            sandbox.serve(shutdown).await;
        });
        demo::create_ticket_types(addresses.orders).await?;
        Ok(world)
    }

    /// Where everything listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Ends the parts one after the other; each answers what it was asked.
    pub async fn stop(self) {
        for part in self.parts {
            part.trigger.begin();
            // A part that panicked has said so already.
            part.served.await.ok();
        }
        self.tasks.wait().await;
    }

    fn serve<F>(&mut self, name: &'static str, serve: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (trigger, shutdown) = Shutdown::new();
        let served = self.tasks.spawn(name, serve(shutdown));
        self.parts.push(Part { trigger, served });
    }
}

fn idem_config(settings: &Settings, ports: &Addresses) -> anyhow::Result<idem_service::Config> {
    Ok(idem_service::Config {
        listen: ports.idem,
        admin_listen: ports.idem_admin,
        store: settings.store("idem.db")?,
        store_connections: 16,
        encryption_keys: settings.encryption_keys.clone(),
        service_tokens: None,
        tls_cert: None,
        tls_key: None,
        tls_client_ca: None,
        insecure: false,
        reflection: None,
        drain: settings.drain,
        drain_delay: Duration::ZERO,
        purge_interval: Duration::from_secs(60),
        replay_cache_mib: 32,
    })
}

fn orders_config(
    settings: &Settings,
    ports: &Addresses,
    sandbox: std::net::SocketAddr,
) -> anyhow::Result<orders_service::Config> {
    Ok(orders_service::Config {
        listen: ports.orders,
        admin_listen: ports.orders_admin,
        store: settings.store("orders.db")?,
        acquirer_url: endpoint(sandbox)?,
        acquirer_ca: None,
        acquirer_timeout: settings.acquirer_timeout,
        hold_ttl: settings.hold_ttl,
        payment_link_base: format!("http://{}/pay", ports.rest),
        drain: settings.drain,
        ..orders_service::Config::default()
    })
}

fn gateway_config(
    settings: &Settings,
    ports: &Addresses,
    idem: std::net::SocketAddr,
    orders: std::net::SocketAddr,
) -> anyhow::Result<gateway::Config> {
    let entry = |tenant: &str, key: &str, operator| ApiKeyEntry {
        tenant: tenant.into(),
        secret: ApiKeySecret::Key(key.into()),
        operator,
        expires_at: None,
    };
    let demo = demo::API_KEYS.into_iter().map(|(tenant, key, operator)| entry(tenant, key, operator));
    let more = settings.api_keys.iter().map(|(tenant, key)| entry(tenant, key, false));
    let api_keys = ApiKeys::from_entries(demo.chain(more))?;
    let cors_origins = settings.cors_origins.iter().map(|origin| origin.parse()).collect::<Result<_, _>>();
    Ok(gateway::Config {
        listen: ports.rest,
        admin_listen: ports.gateway_admin,
        lease: settings.lease,
        retention: settings.retention,
        upstream_timeout: settings.upstream_timeout,
        drain: settings.drain,
        limits: settings.limits,
        pace: pace(&settings.idem_clock),
        cors_origins: cors_origins.map_err(|e| anyhow::anyhow!("{e}"))?,
        ..gateway::Config::new(api_keys, endpoint(idem)?, endpoint(orders)?)
    })
}

/// As time passes for a store whose clock may be moved by hand.
fn pace(clock: &Clock) -> Pace {
    let (clock, start) = (clock.clone(), Instant::now());
    Pace::new(move || start.elapsed() + clock.offset())
}

fn endpoint(address: std::net::SocketAddr) -> anyhow::Result<Endpoint> {
    format!("http://{address}").parse().map_err(|e| anyhow::anyhow!("{e}"))
}
