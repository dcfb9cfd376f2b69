//! A campaign from its begin to its verdict.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep, timeout},
};

use crate::{
    buyers::Settings,
    deeds::Deeds,
    flags::Flags,
    nemesis::{Nemesis, kind::Kind, plan::Plan},
    proof::{Proof, Verdict, check_again},
    world::{World, WorldSettings, layout},
};

/// How long everything may take to be itself again after the last fault.
const HEALING: Duration = Duration::from_secs(120);

/// How often buyers hang up, when they do.
const CLIENT_GONE: f64 = 0.05;

/// Runs a campaign, prints its plan, or judges one that was recorded. An interrupt ends everything that was started.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    if let Some(directory) = &flags.judge {
        return conclude(&check_again(directory)?, &[], "");
    }
    let seed = flags.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    flags.faults.refuse_strangers(&flags.targets, flags.store)?;
    let plan = Plan::of(seed, flags.duration, &flags.faults, &flags.targets, flags.store);
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
    let (begun, replay) = (Instant::now(), flags.replay(seed));
    let directory = report_directory(flags, seed)?;
    say(&format!("seed {seed}: {} faults planned; logs and report in {}", plan.faults.len(), directory.display()));
    let settings = WorldSettings {
        store: flags.store,
        binaries: layout::binaries(flags.bin_dir.clone())?,
        report: directory.clone(),
        seed,
        moves_clocks: flags.faults.contains(Kind::Clock),
        client_gone: if flags.faults.contains(Kind::ClientGone) { CLIENT_GONE } else { 0.0 },
    };
    let world = World::start(&settings).await?;
    say(&format!("everything is ready after {:.1?}", begun.elapsed()));
    let buyers = Settings { seed, count: flags.buyers, rate: flags.rate };
    let proof = Proof::begin(world.edge(), &directory, buyers, &replay).await?;

    let nemesis = Nemesis::new(world.clone());
    let (done, ()) = tokio::join!(nemesis.carry_out(plan), sleep(flags.duration));
    timeout(HEALING, world.heal()).await.context("the world does not heal")??;
    say(&format!("faults are over and healed after {:.0?}; waiting until everything is settled", begun.elapsed()));

    let verdict = proof.finish().await?;
    let deeds = Deeds::of(&world, done, &directory);
    deeds.write(&directory, &verdict.report)?;
    say(&format!("{deeds}{} requests in {:.0?}", verdict.operations, begun.elapsed()));
    conclude(&verdict, &deeds.violations(), &replay)
}

/// The verdict, for people and for the exit code.
fn conclude(verdict: &Verdict, seen_by_world: &[String], replay: &str) -> anyhow::Result<()> {
    let all: Vec<String> =
        verdict.violations.iter().map(ToString::to_string).chain(seen_by_world.iter().cloned()).collect();
    all.iter().take(SHOWN).for_each(|violation| say(violation));
    say(&format!("report: {}", verdict.report.display()));
    if all.is_empty() {
        ensure!(
            verdict.successes > 0,
            "nothing was sold, so there was nothing to judge: a campaign that does nothing proves nothing"
        );
        say("nothing violated");
        return Ok(());
    }
    if !replay.is_empty() {
        say(&format!("replay: {replay}"));
    }
    ensure!(all.is_empty(), "{} violations", all.len());
    Ok(())
}

/// The report has all of them.
const SHOWN: usize = 30;

fn report_directory(flags: &Flags, seed: u64) -> anyhow::Result<PathBuf> {
    let directory = match &flags.report {
        Some(directory) => directory.clone(),
        None => std::env::temp_dir().join(format!("faults-report-{seed}-{}", std::process::id())),
    };
    let made = std::fs::create_dir_all(&directory);
    made.with_context(|| format!("the report in {}", directory.display()))?;
    refuse_an_old_one(&directory)?;
    Ok(directory)
}

/// Logs are appended to, and two campaigns in one log would be judged together.
fn refuse_an_old_one(directory: &Path) -> anyhow::Result<()> {
    let is_used = directory.join(crate::history::FILE).exists();
    ensure!(!is_used, "{} holds another campaign: give another --report", directory.display());
    Ok(())
}

/// To whoever ran it. A reader that has heard enough, such as `head`, is no failure.
fn say(sentence: &str) {
    let _ = writeln!(io::stdout(), "{sentence}");
}
