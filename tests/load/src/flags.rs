//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{baseline::Baseline, simulate::Simulate, workload::Workload};

/// The benchmark: the product beside everything it is compared with, on this one machine, alternately within one run.
///
/// It starts all of it: a private Postgres with default durability, the product's release binaries (beside this one, or in
/// --bin-dir), and the baselines. Results go to stdout, progress to stderr. Ends with 1 when an answer was not the expected one
/// or a bar was missed.
#[derive(Clone, Debug, Parser)]
#[command(name = "load", version)]
pub struct Flags {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Measure some workloads, with their bars
    Run {
        /// Which
        #[arg(required = true, value_enum)]
        workloads: Vec<Workload>,
        /// How
        #[command(flatten)]
        settings: Settings,
    },
    /// Measure all workloads and print one table; reduced to a quarter of an hour unless --full is given
    Bars {
        /// Every round at its full length
        #[arg(long, conflicts_with = "quick")]
        full: bool,
        /// How
        #[command(flatten)]
        settings: Settings,
    },
    /// Draw rate against latency over several open-loop rates, the product beside (e)
    Curve {
        /// Where the picture goes
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Requests a second, one after the other; shares of what either side can do when left out
        #[arg(long, value_name = "PER_SECOND", value_delimiter = ',', value_parser = rate)]
        rates: Vec<f64>,
        /// How
        #[command(flatten)]
        settings: Settings,
    },
    /// What many machines would do, computed from what one was measured to need; starts nothing
    Simulate(Simulate),
    /// What the product is compared with (started by the others)
    #[command(subcommand, hide = true)]
    Baseline(Baseline),
}

/// How thorough, and where results go.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Three short rounds instead of five, and smaller tables
    #[arg(long)]
    pub quick: bool,
    /// How often each side has its turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: Option<u16>,
    /// How long a turn is
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub length: Option<Duration>,
    /// Connections of the load generator
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = connections)]
    pub connections: usize,
    /// Of a hundred requests, so many are the one before sent again with the same key
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub retries: f64,
    /// Send so many requests a second, all sides alike, whether or not answers come (an open loop); no bars are judged then
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// Keys in the large table of table-size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(20_000..=100_000_000))]
    pub keys: Option<u64>,
    /// Expired keys that are purged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=10_000_000))]
    pub expired: Option<u64>,
    /// Requests under way together in memory
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = connections)]
    pub in_flight: usize,
    /// How long soak goes on
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub soak: Option<Duration>,
    /// Where the product's binaries are; those that are not there are taken from beside this one
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Where everything that was measured goes as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

// === impl Settings ===

impl Settings {
    /// How often each side has its turn.
    pub fn rounds(&self) -> usize {
        self.rounds.map_or(if self.quick { 3 } else { 5 }, usize::from)
    }

    /// How long a turn is.
    pub fn length(&self) -> Duration {
        self.length.unwrap_or(Duration::from_secs(if self.quick { 3 } else { 8 }))
    }

    /// Keys in the large table.
    pub fn keys(&self) -> u64 {
        self.keys.unwrap_or(if self.quick { 500_000 } else { 5_000_000 })
    }

    /// Expired keys to purge.
    pub fn expired(&self) -> u64 {
        self.expired.unwrap_or(if self.quick { 200_000 } else { 1_000_000 })
    }

    /// How long soak goes on.
    pub fn soak(&self) -> Duration {
        self.soak.unwrap_or(Duration::from_secs(if self.quick { 60 } else { 600 }))
    }

    /// How long a turn goes on before it counts.
    pub fn warm_up(&self) -> Duration {
        (self.length() / 4).min(Duration::from_secs(2))
    }
}

fn connections(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=10_000).contains(count)).ok_or_else(|| "1 to 10000 connections".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|rate| (0.1..=1e6).contains(rate)).ok_or_else(|| "0.1 to a million a second".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=50.0).contains(share)).ok_or_else(|| "0 to 50 percent".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(words: &[&str]) -> Result<Command, String> {
        let flags = Flags::try_parse_from([&["load"], words].concat());
        flags.map(|flags| flags.command).map_err(|error| error.to_string())
    }

    #[test]
    fn a_run_names_its_workloads_and_quick_is_shorter() {
        Flags::command().debug_assert();
        let Ok(Command::Run { workloads, settings }) = parse(&["run", "orders-hot", "--quick", "--retries", "5"])
        else {
            panic!("a run of one workload")
        };
        assert_eq!((workloads, settings.rounds(), settings.retries), (vec![Workload::OrdersHot], 3, 5.0));
        let Ok(Command::Bars { full: true, settings: thorough }) = parse(&["bars", "--full"]) else {
            panic!("all bars")
        };
        assert!(thorough.rounds() == 5 && thorough.length() > settings.length());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_flag() {
        for (words, flag) in [
            (&["run"][..], "WORKLOADS"),
            (&["run", "everything"], "everything"),
            (&["run", "orders-hot", "--retries", "80"], "--retries"),
            (&["run", "orders-hot", "--rounds", "0"], "--rounds"),
            (&["run", "orders-hot", "--connections", "0"], "--connections"),
            (&["bars", "--full", "--quick"], "--full"),
            (&["curve", "--rates", "100,-1"], "--rates"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(flag), "{words:?}: {error}");
        }
    }
}
