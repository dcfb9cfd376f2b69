//! A campaign of faults against the real processes.
//!
//! [`world`] runs the system, [`nemesis`] does it harm, the buyers buy and record what they saw, the checker holds that
//! against its own reading of both stores and the acquirer's ledger. [`edge`] is all that the two halves share.

use std::process::ExitCode;

use chassis::process;
use clap::Parser as _;

mod buyers;
mod campaign;
mod checker;
mod deeds;
mod edge;
mod flags;
mod history;
mod ledger;
mod nemesis;
mod proof;
mod report;
mod world;

fn main() -> ExitCode {
    process::run("faults", || Ok::<_, anyhow::Error>(flags::Flags::parse()), campaign::run)
}
