//! The command line, and the command that repeats a campaign.

use std::{path::PathBuf, time::Duration};

use clap::Parser;

use crate::{nemesis::kind::Kinds, world::Store};

/// Buys under faults, and checks what came of it.
///
/// Starts the whole system as separate processes, lets buyers retry against it while a nemesis does harm by a plan that
/// follows from the seed, then heals everything, waits until all keys are settled, and holds the history of the buyers
/// against the databases and the acquirer's ledger. Ends with 0 when nothing was violated, with 1 otherwise.
#[derive(Clone, Debug, Parser)]
#[command(name = "faults", version)]
pub struct Flags {
    /// Decides the plan and what buyers want; a random one when left out, printed either way.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long buyers buy and the nemesis does harm. Settling and checking come after.
    #[arg(long, default_value = "2m", value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub duration: Duration,
    /// all, none, or some of them by name, comma-separated.
    #[arg(long, default_value = "all", value_name = "KINDS")]
    pub faults: Kinds,
    /// Only these processes, roads and stores are harmed, named as in the plan; any when left out.
    #[arg(long, value_delimiter = ',', value_name = "TARGETS")]
    pub targets: Vec<String>,
    /// Where the services keep their data.
    #[arg(long, default_value = "postgres", value_enum)]
    pub store: Store,
    /// How many buyers buy at the same time.
    #[arg(long, default_value_t = 24, value_name = "N")]
    pub buyers: usize,
    /// How many requests they send a second at most, all together.
    #[arg(long, default_value_t = 40.0, value_name = "N")]
    pub rate: f64,
    /// Where logs, history and the report go; a new directory under the system's temporary one when left out.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Where another build of the programs is. Those that are not in it are taken from beside this one.
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Only print what would be done when to whom.
    #[arg(long)]
    pub plan: bool,
    /// Only judge once more what an earlier run has recorded in its report directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "report"])]
    pub judge: Option<PathBuf>,
}

// === impl Flags ===

impl Flags {
    /// The command that does the same again.
    pub fn replay(&self, seed: u64) -> String {
        let store = match self.store {
            Store::Postgres => "postgres",
            Store::Sqlite => "sqlite",
        };
        let duration = humantime::format_duration(self.duration).to_string().replace(' ', "");
        let mut command = format!(
            "cargo run -p faults -- --seed {seed} --duration {duration} --faults {} --store {store} --buyers {} --rate {}",
            self.faults, self.buyers, self.rate
        );
        if !self.targets.is_empty() {
            command += &format!(" --targets {}", self.targets.join(","));
        }
        if let Some(binaries) = &self.bin_dir {
            command += &format!(" --bin-dir {}", binaries.display());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn replaying_parses_to_the_same_campaign() {
        Flags::command().debug_assert();
        let given = [
            "faults",
            "--duration",
            "90s",
            "--faults",
            "kill,cut",
            "--store",
            "sqlite",
            "--buyers",
            "7",
            "--targets",
            "idem-0,disk",
        ];
        let flags = Flags::try_parse_from(given).unwrap();
        let command = flags.replay(42);
        let words = command.strip_prefix("cargo run -p ").unwrap().split(' ').filter(|word| *word != "--");
        let again = Flags::try_parse_from(words).unwrap();
        assert_eq!((again.seed, again.duration, again.store, again.buyers), (Some(42), flags.duration, flags.store, 7));
        assert_eq!((again.faults, again.targets), (flags.faults, flags.targets));
    }
}
