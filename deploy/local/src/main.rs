//! `cargo run`: the whole system on this machine, and what to try with it.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use chassis::{Allocator, admin::Readiness, healthcheck, process, shutdown};
use clap::{Parser, Subcommand};
use idem_local::{Addresses, Flags, World};

/// Idem in one process: gateway, idempotency service, orders service and an acquirer to play with.
#[derive(Parser)]
#[command(name = "idem-local", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum Command {
    /// Ask the system that runs here whether its gateway is ready: exits with 0 if so, else with 1 and the reason
    Healthcheck {
        /// The first of its seven ports, if it was given one
        #[arg(long, env = "IDEM_LOCAL_PORT_BASE", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65529))]
        port_base: Option<u16>,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let Cli { command, flags } = Cli::parse();
    if let Some(Command::Healthcheck { port_base }) = command {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, port_base.map_or(8081, |base| base + 1)));
        return healthcheck::run("idem-local", admin, "/readyz");
    }
    process::run("idem-local", || judge(flags), run)
}

/// Refuses what makes no sense before anything is opened.
fn judge(flags: Flags) -> anyhow::Result<idem_local::Settings> {
    let settings = flags.into_settings()?;
    World::check(&settings)?;
    Ok(settings)
}

async fn run(settings: idem_local::Settings) -> anyhow::Result<()> {
    let shutdown = shutdown::on_signals(Duration::ZERO, Readiness::new());
    let world = World::start(settings).await?;
    greet(&world.addresses())?;
    shutdown.draining().await;
    world.stop().await;
    Ok(())
}

fn greet(at: &Addresses) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "\
REST          http://{rest}        (docs at /docs, health and metrics at http://{gateway_admin})
idempotency   http://{idem}        gRPC (console at http://{idem_admin})
orders        http://{orders}        gRPC (health and metrics at http://{orders_admin})
acquirer      http://{sandbox}        sandbox

API keys      sk_demo_a, sk_demo_b (two tenants), sk_demo_ops (operator)
try           curl -i http://{rest}/v1/orders -H 'Authorization: Bearer sk_demo_a' -H 'Idempotency-Key: my-first-order' \\
                -H 'Content-Type: application/json' -d '{{\"venueId\":\"demo\",\"items\":[{{\"ticketTypeId\":\"general\",\"quantity\":2}}]}}'
              … and the same again: nothing happens twice
ready",
        rest = at.rest,
        gateway_admin = at.gateway_admin,
        idem = at.idem,
        idem_admin = at.idem_admin,
        orders = at.orders,
        orders_admin = at.orders_admin,
        sandbox = at.sandbox,
    )?;
    out.flush()
}
