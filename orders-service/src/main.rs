//! `orders-service [serve]`, `orders-service migrate --store URL` and `orders-service healthcheck`.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use chassis::{Allocator, flags, healthcheck, process, shutdown};
use clap::Parser as _;
use database::Clock;
use orders_service::{
    Config, OrdersService,
    config::{Cli, Command},
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let cli = parse();
    if let Some(Command::Healthcheck(healthcheck)) = &cli.command {
        return healthcheck::run("orders-service", healthcheck.admin_listen, "/readyz");
    }
    process::run("orders-service", || Ok::<_, anyhow::Error>(cli), run)
}

/// The command line. clap repeats a value that it refuses, and the URL of a store may hold a password.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| match flags::without_passwords(&error.to_string()) {
        Some(masked) => {
            let _ = write!(io::stderr(), "{masked}");
            std::process::exit(error.exit_code())
        }
        None => error.exit(),
    })
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Some(Command::Migrate(migrate)) => {
            let migrated = orders_service::migrate(&migrate.store).await?;
            tracing::info!("{migrated}");
            Ok(())
        }
        Some(Command::Serve(config)) => serve(*config).await,
        // A health check has ended before a process was made of it.
        None | Some(Command::Healthcheck(_)) => serve(cli.config).await,
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let (drain, drain_delay) = (config.drain, config.drain_delay);
    let service = OrdersService::bind(config, Clock::system()).await?;
    let shutdown = shutdown::on_signals(drain_delay, service.readiness());
    tracing::info!(listen = %service.local_addr()?, admin = %service.admin_addr()?, "orders service is serving");
    service.serve(shutdown, drain).await;
    Ok(())
}
