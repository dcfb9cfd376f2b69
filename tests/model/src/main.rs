//! Checks the protocol from the command line, and shows how a rule that is left out comes to harm.
#![allow(clippy::print_stdout, reason = "it is a program with a terminal")]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};

use clap::{Parser, ValueEnum};
use model::{
    checking::{self, Checked, Search},
    configuration::Configuration,
    mutations::Mutation,
};

/// Checks the protocol of keys, tokens and payments in every state that it can reach.
#[derive(Parser, Debug)]
#[command(version)]
struct Flags {
    /// How large a world is checked: `small` in seconds, `large` in minutes.
    #[arg(long, default_value = "small", conflicts_with_all = ["mutation", "list"])]
    config: Size,
    /// Checks only configurations whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// So many faults, instead of those of the configuration.
    #[arg(long, conflicts_with = "mutation")]
    faults: Option<u8>,
    /// So many requests of clients, instead of those of the configuration.
    #[arg(long, conflicts_with = "mutation")]
    requests: Option<u8>,
    /// Leaves a rule of the protocol out, and shows how that comes to harm.
    #[arg(long, value_name = "NAME")]
    mutation: Option<String>,
    /// Lists the mutations, and the rule that each must break.
    #[arg(long)]
    list: bool,
    /// Threads that search.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Size {
    Small,
    Large,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let is_as_it_should_be = match &flags.mutation {
        _ if flags.list => list(),
        Some(name) => match Mutation::parse(name) {
            Some(mutation) => show(mutation),
            None => {
                println!("there is no mutation {name}; --list names them");
                false
            }
        },
        None => check_all(&flags),
    };
    if is_as_it_should_be { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list() -> bool {
    for (mutation, name) in Mutation::ALL {
        println!("{name:33} breaks: {}", mutation.breaks().name());
    }
    true
}

/// Shows the trace of a mutation; true when it breaks the rule that it must.
fn show(mutation: Mutation) -> bool {
    let checked = checking::catch(mutation);
    let Some(trace) = checked.trace_of(mutation.breaks()) else {
        println!("{} was not caught in {} states", mutation.name(), checked.states);
        return false;
    };
    println!("{} breaks: {}", mutation.name(), mutation.breaks().name());
    println!("{}", trace.join("\n"));
    true
}

/// Checks the configurations of a size; true when no rule is broken and all is seen that must be.
fn check_all(flags: &Flags) -> bool {
    let (configurations, search) = match flags.config {
        Size::Small => (Configuration::small_ones(), Search::Breadth),
        Size::Large => (Configuration::large_ones(), Search::Depth),
    };
    let mut is_all_well = true;
    for mut configuration in configurations.into_iter().filter(|one| one.name.contains(&flags.only)) {
        let left = &mut configuration.left;
        left.faults = flags.faults.unwrap_or(left.faults);
        left.requests = flags.requests.unwrap_or(left.requests);
        println!("{}: {:?}", configuration.name, configuration.left);
        let told = AtomicU64::new(0);
        let checked = checking::check(configuration, search, flags.threads, |data| {
            let seconds = data.duration.as_secs();
            if !data.done && seconds >= told.load(Ordering::Relaxed) + 10 {
                told.store(seconds, Ordering::Relaxed);
                println!(
                    "  {seconds} s: {} steps, {} states, depth {}",
                    data.total_states, data.unique_states, data.max_depth
                );
            }
        });
        is_all_well &= report(&checked);
    }
    is_all_well
}

fn report(checked: &Checked) -> bool {
    let Checked { steps, states, depth, duration, .. } = checked;
    println!("  {states} states by {steps} steps, at most {depth} deep, in {:.1} s", duration.as_secs_f64());
    for (rule, trace) in &checked.broken {
        println!("  BROKEN: {}\n{}", rule.name(), trace.join("\n"));
    }
    for name in &checked.unseen {
        println!("  NOT {name}");
    }
    if checked.broken.is_empty() && checked.unseen.is_empty() {
        println!("  no rule is broken, and all {} sights were seen", checked.seen.len());
    }
    checked.broken.is_empty() && checked.unseen.is_empty()
}
