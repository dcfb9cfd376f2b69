//! `cargo run`: the whole system on this machine, and what to try with it.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use chassis::{Allocator, admin::Readiness, process, shutdown};
use clap::Parser;
use idem_local::{Addresses, Flags, World};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let flags = Flags::parse();
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
