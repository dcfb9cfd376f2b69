//! How each kind of fault is done and undone.

use std::time::Duration;

use tokio::time::sleep;

use super::{kind::Kind, plan::Fault};
use crate::world::{World, layout::DRAIN, proxy::Trouble, webhooks::Mischief};

/// A process that was told to end has its drain, and then some.
const PATIENCE: Duration = DRAIN.saturating_add(Duration::from_secs(5));

/// Inflicts the fault, waits, heals it, and waits until its target is itself again. Healed in any case.
pub(super) async fn carry_out(world: &World, fault: &Fault) -> anyhow::Result<()> {
    let length = fault.length();
    let amount = Duration::from_millis(fault.amount.unsigned_abs());
    match fault.kind {
        Kind::Kill => {
            let program = world.program(&fault.target)?;
            program.kill();
            sleep(length).await;
            program.launch()?;
            world.until_one_is_ready(&fault.target).await
        }
        Kind::Stop => {
            let program = world.program(&fault.target)?;
            program.freeze();
            sleep(length).await;
            program.thaw();
            world.until_one_is_ready(&fault.target).await
        }
        Kind::Restart => restart(world, fault).await,
        Kind::Cut => road(world, fault, Trouble::Cut).await,
        Kind::Delay | Kind::SlowAcquirer => road(world, fault, Trouble::Delay(amount)).await,
        Kind::Stall => road(world, fault, Trouble::Stall).await,
        Kind::HalfOpen => road(world, fault, Trouble::HalfOpen).await,
        Kind::DropReply => road(world, fault, Trouble::DropReply).await,
        Kind::EndSessions => {
            world.cluster()?.end_sessions().await?;
            world.until_ready().await
        }
        Kind::PostgresRestart => {
            world.cluster()?.restart(length).await?;
            world.until_ready().await
        }
        Kind::Failover => {
            world.cluster()?.fail_over().await?;
            world.until_ready().await
        }
        Kind::Outage | Kind::Refusals => {
            // It ends by itself.
            let status = if fault.kind == Kind::Outage { 503 } else { 400 };
            world.acquirer_outage(length, status).await?;
            sleep(length).await;
            Ok(())
        }
        Kind::WebhookLost => webhooks(world, fault, Mischief::Lost).await,
        Kind::WebhookRepeated => webhooks(world, fault, Mischief::Repeated).await,
        Kind::WebhookReordered => webhooks(world, fault, Mischief::Reordered).await,
        Kind::WebhookForged => webhooks(world, fault, Mischief::Forged).await,
        Kind::Clock => clock(world, fault).await,
        Kind::DiskFull => disk_full(world, fault).await,
        Kind::ClientGone => Ok(()),
    }
}

async fn restart(world: &World, fault: &Fault) -> anyhow::Result<()> {
    let program = world.program(&fault.target)?;
    let status = program.terminate(PATIENCE).await;
    sleep(fault.length()).await;
    program.launch()?;
    world.until_one_is_ready(&fault.target).await?;
    match status {
        Some(status) if status.success() => {}
        Some(status) => {
            world.incidents().violation(format!("{} was told to end and ended with {status}", fault.target))
        }
        None => world.incidents().violation(format!("{} was told to end and had not after {PATIENCE:?}", fault.target)),
    }
    Ok(())
}

async fn road(world: &World, fault: &Fault, trouble: Trouble) -> anyhow::Result<()> {
    let road = match fault.target.as_str() {
        "postgres/replication" => world.cluster()?.following().await,
        name => world.road(name)?.clone(),
    };
    road.make(trouble);
    sleep(fault.length()).await;
    road.make(Trouble::None);
    // Whoever used it connects again.
    match fault.target.split_once('/') {
        Some(("client", gateway)) => world.until_one_is_ready(gateway).await,
        Some(("postgres", _)) => world.until_ready().await,
        Some((from, _)) => world.until_one_is_ready(from).await,
        None => Ok(()),
    }
}

async fn webhooks(world: &World, fault: &Fault, mischief: Mischief) -> anyhow::Result<()> {
    world.webhooks().make(mischief);
    sleep(fault.length()).await;
    world.webhooks().make(Mischief::None);
    Ok(())
}

async fn clock(world: &World, fault: &Fault) -> anyhow::Result<()> {
    /// The process reads its offset anew once a second.
    const NOTICED: Duration = Duration::from_millis(1_100);
    let clocks = world.clocks()?;
    clocks.set(&fault.target, fault.amount)?;
    sleep(fault.length()).await;
    clocks.set(&fault.target, 0)?;
    sleep(NOTICED).await;
    Ok(())
}

async fn disk_full(world: &World, fault: &Fault) -> anyhow::Result<()> {
    let (disk, services) = (world.disk()?, world.services());
    let filled = disk.fill(&services);
    sleep(fault.length()).await;
    disk.free(&services)?;
    filled?;
    world.until_ready().await
}
