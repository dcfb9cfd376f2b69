//! The benchmark is part of the product: whoever doubts a figure starts it.
//!
//! [`stage`] starts everything, [`generator`] asks, [`baseline`] is what the product is compared with, [`workload`] says what is
//! asked of whom, [`compare`] takes turns and [`bar`] holds the result against what was promised.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, ensure};
use chassis::process;
use clap::Parser as _;

mod bar;
mod baseline;
mod bench;
mod compare;
mod curve;
mod flags;
mod generator;
mod picture;
mod say;
mod simulate;
mod stage;
mod workload;

use bar::{Bar, Report};
use bench::Bench;
use compare::Rounds;
use flags::{Command, Flags, Settings};
use workload::Workload;

fn main() -> ExitCode {
    let flags = Flags::parse();
    process::run("load", || Ok::<_, anyhow::Error>(flags), run)
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    match flags.command {
        Command::Baseline(baseline) => baseline.run().await,
        Command::Simulate(simulate) => {
            say::result(&simulate.run());
            Ok(())
        }
        Command::Run { workloads, settings } => until_interrupted(measure(&workloads, settings)).await,
        Command::Bars { full, settings } => {
            let settings = Settings { quick: !full, ..settings };
            until_interrupted(measure(Workload::all(), settings)).await
        }
        Command::Curve { svg, rates, settings } => {
            let drawn = async {
                let json = settings.json.clone();
                let points = curve::run(&mut Bench::new(settings)?, &rates, svg.as_deref()).await?;
                json.map_or(Ok(()), |file| write_json(&file, &points))
            };
            until_interrupted(drawn).await
        }
    }
}

async fn measure(workloads: &[Workload], settings: Settings) -> anyhow::Result<()> {
    let (json, is_open) = (settings.json.clone(), settings.rate.is_some());
    let mut bench = Bench::new(settings)?;
    let mut reports = Vec::new();
    for workload in workloads {
        // One that fails is a bar that is missed; the others are worth knowing all the same.
        let report = workload.run(&mut bench).await.unwrap_or_else(|error| {
            say::progress(&format!("{}: {error:#}", workload.name()));
            Report::failed(*workload, &error)
        });
        if is_open {
            report.sides.iter().for_each(|side| say::result(&side.latencies()));
        } else {
            say::result(&bar::table(&report.bars.iter().collect::<Vec<_>>()));
            report.sides.iter().filter_map(Rounds::cost).for_each(|cost| say::result(&cost));
        }
        reports.push(report);
    }
    // First the processes end: what is left to do is quick.
    drop(bench);
    if let Some(file) = json {
        write_json(&file, &reports.iter().map(Report::to_json).collect())?;
    }
    conclude(&reports, is_open)
}

fn conclude(reports: &[Report], is_open: bool) -> anyhow::Result<()> {
    let bars: Vec<&Bar> = reports.iter().flat_map(|report| &report.bars).collect();
    if reports.len() > 1 && !is_open {
        say::result(&bar::table(&bars));
    }
    let failed: Vec<&str> = reports.iter().filter_map(|report| report.failure.as_deref()).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    if is_open {
        return Ok(());
    }
    let missed = bars.iter().filter(|bar| !bar.is_met()).count();
    ensure!(missed == 0, "{missed} of {} bars missed", bars.len());
    Ok(())
}

fn write_json(file: &Path, value: &serde_json::Value) -> anyhow::Result<()> {
    std::fs::write(file, serde_json::to_string_pretty(value)?).context("the file of --json")
}

/// Whatever was started ends with the work that is dropped here.
async fn until_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminated.recv() => anyhow::bail!("terminated"),
    }
}
