//! `orders-service [serve]` and `orders-service migrate --store URL`.

use std::process::ExitCode;

use chassis::{process, shutdown};
use clap::Parser as _;
use database::Clock;
use orders_service::{
    Config, OrdersService,
    config::{Cli, Command},
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    process::run("orders-service", || Ok::<_, anyhow::Error>(cli), run)
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Some(Command::Migrate(migrate)) => {
            let migrated = orders_service::migrate(&migrate.store).await?;
            tracing::info!("{migrated}");
            Ok(())
        }
        Some(Command::Serve(config)) => serve(*config).await,
        None => serve(cli.config).await,
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
