//! A campaign from its begin to its verdict.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, timeout},
};

use crate::{
    flags::Flags,
    nemesis::{Nemesis, counts, kind::Kind, plan::Plan},
    world::{World, WorldSettings, layout},
};

/// Runs a campaign, or prints its plan. An interrupt ends everything that was started.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let seed = flags.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let plan = Plan::of(seed, flags.duration, &flags.faults, flags.store);
    if flags.plan {
        say(&format!("{plan}{} faults\nreplay: {}", plan.faults.len(), flags.replay(seed)));
        return Ok(());
    }
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        verdict = campaign(&flags, seed, &plan) => verdict,
        _ = terminated.recv() => bail!("terminated before the end"),
        _ = interrupted.recv() => bail!("interrupted before the end"),
    }
}

async fn campaign(flags: &Flags, seed: u64, plan: &Plan) -> anyhow::Result<()> {
    let report = report_directory(flags, seed)?;
    say(&format!("seed {seed}, {} faults planned, logs in {}", plan.faults.len(), report.display()));
    let begun = Instant::now();
    let settings = WorldSettings {
        store: flags.store,
        binaries: layout::binaries(flags.bin_dir.clone())?,
        report: report.clone(),
        seed,
        moves_clocks: flags.faults.contains(Kind::Clock),
        client_gone: if flags.faults.contains(Kind::ClientGone) { 0.05 } else { 0.0 },
    };
    let world = World::start(&settings).await?;
    say(&format!("the world is ready after {:?}", begun.elapsed()));
    let nemesis = Nemesis::new(world.clone());
    let done = nemesis.carry_out(plan).await;
    say(&format!("{:?}", counts(&done)));
    timeout(Duration::from_secs(120), world.heal()).await.context("the world does not heal")??;
    for fault in &done {
        say(&format!("{}  {}..{} {:?}", fault.fault, fault.from_ms, fault.until_ms, fault.trouble));
    }
    for incident in world.incidents().snapshot() {
        say(&format!("{incident:?}"));
    }
    Ok(())
}

fn report_directory(flags: &Flags, seed: u64) -> anyhow::Result<PathBuf> {
    let directory = match &flags.report {
        Some(directory) => directory.clone(),
        None => std::env::temp_dir().join(format!("faults-report-{seed}-{}", std::process::id())),
    };
    std::fs::create_dir_all(&directory).with_context(|| format!("the report in {}", directory.display()))?;
    Ok(directory)
}

/// To whoever ran it. A reader that has heard enough, such as `head`, is no failure.
fn say(sentence: &str) {
    let _ = writeln!(io::stdout(), "{sentence}");
}
