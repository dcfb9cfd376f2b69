//! The acquirer sandbox as a process of its own.

use std::process::ExitCode;
use std::time::Duration;

use acquirer_sandbox::{Config, Sandbox};
use chassis::{Allocator, admin::Readiness, process, shutdown};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    process::run("acquirer-sandbox", || Config::parse().checked(), serve)
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let sandbox = Sandbox::bind(config)?;
    // Nobody balances to it, so there is nobody to wait for before the drain.
    let shutdown = shutdown::on_signals(Duration::ZERO, Readiness::new());
    tracing::info!(address = %sandbox.local_addr(), "serving");
    sandbox.serve(shutdown).await;
    Ok(())
}
