//! A campaign of faults against the real processes.
//!
//! [`world`] runs the system, [`nemesis`] does it harm, the buyers buy and record what they saw, the checker holds that
//! against its own reading of both stores and the acquirer's ledger. [`edge`] is all that the two halves share.

use std::process::ExitCode;

use chassis::process;
use clap::Parser as _;

#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod buyers;
mod campaign;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod checker;
mod deeds;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod edge;
mod flags;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod history;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod ledger;
mod nemesis;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod proof;
#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod report;
mod world;

fn main() -> ExitCode {
    process::run("faults", || Ok::<_, anyhow::Error>(flags::Flags::parse()), campaign::run)
}
