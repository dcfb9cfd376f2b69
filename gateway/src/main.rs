//! `gateway [serve] --api-keys FILE` serves the REST API until it is told to end; `gateway healthcheck` asks one that runs.

use chassis::{Allocator, healthcheck, process, shutdown};
use clap::{Parser, Subcommand};
use gateway::{Config, ConfigError, Flags, Gateway, StartError};
use std::{net::SocketAddr, process::ExitCode, time::Duration};

/// The REST gateway: makes retried requests safe and forwards them to the orders service.
///
/// Every flag also reads the environment variable shown beside it. Durations are written like 60s, 100ms or 24h.
#[derive(Parser)]
#[command(name = "gateway", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; this is also what happens without a subcommand.
    Serve(Box<Flags>),
    /// Ask the gateway that runs here whether it is ready: exits with 0 if so, else with 1 and the reason.
    Healthcheck {
        /// Where its admin pages are.
        #[arg(long, env = "GATEWAY_ADMIN_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8081")]
        admin_listen: SocketAddr,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let Cli { command, flags } = Cli::parse();
    let flags = match command {
        None => flags,
        Some(Command::Serve(flags)) => *flags,
        Some(Command::Healthcheck { admin_listen }) => return healthcheck::run("gateway", admin_listen, "/readyz"),
    };
    process::run("gateway", || configure(flags), serve)
}

fn configure(flags: Flags) -> Result<(Config, Duration), ConfigError> {
    let drain_delay = flags.drain_delay;
    Ok((flags.into_config()?, drain_delay))
}

async fn serve((config, drain_delay): (Config, Duration)) -> Result<(), StartError> {
    let gateway = Gateway::bind(config)?;
    let shutdown = shutdown::on_signals(drain_delay, gateway.readiness());
    tracing::info!(listen = %gateway.local_addr()?, admin = %gateway.admin_addr()?, "the gateway is serving");
    gateway.serve(shutdown).await;
    Ok(())
}
