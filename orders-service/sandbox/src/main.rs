//! The acquirer sandbox as a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use acquirer_sandbox::{Config, Sandbox};
use chassis::{Allocator, admin::Readiness, healthcheck, process, shutdown};
use clap::{Parser, Subcommand};

/// An acquirer to play with: it charges once per payment id, and fails on request.
#[derive(Parser)]
#[command(name = "acquirer-sandbox", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    config: Config,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; this is also what happens without a subcommand.
    Serve(Config),
    /// Ask the sandbox that runs here whether it answers: exits with 0 if so, else with 1 and the reason.
    Healthcheck {
        /// Where it takes payments.
        #[arg(long, env = "ACQUIRER_LISTEN", default_value = "127.0.0.1:8090", value_name = "IP:PORT")]
        listen: SocketAddr,
    },
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let Cli { command, config } = Cli::parse();
    let config = match command {
        None => config,
        Some(Command::Serve(config)) => config,
        // It has no admin pages; reading the totals changes nothing.
        Some(Command::Healthcheck { listen }) => {
            return healthcheck::run("acquirer-sandbox", listen, "/sandbox/totals");
        }
    };
    process::run("acquirer-sandbox", || config.checked(), serve)
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let sandbox = Sandbox::bind(config)?;
    // Nobody balances to it, so there is nobody to wait for before the drain.
    let shutdown = shutdown::on_signals(Duration::ZERO, Readiness::new());
    tracing::info!(address = %sandbox.local_addr(), "serving");
    sandbox.serve(shutdown).await;
    Ok(())
}
