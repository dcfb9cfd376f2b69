//! `gateway --api-keys FILE`: serves the REST API until it is told to end.

use chassis::{Allocator, process, shutdown};
use clap::Parser as _;
use gateway::{Config, ConfigError, Flags, Gateway, StartError};
use std::{process::ExitCode, time::Duration};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let flags = Flags::parse();
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
