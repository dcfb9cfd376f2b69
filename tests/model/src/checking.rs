//! Running the checker: over everything, or until a rule is seen broken; and telling how it came to that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use stateright::{
    Checker, CheckerBuilder, HasDiscoveries, Model, Path,
    report::{ReportData, ReportDiscovery, Reporter},
};

use crate::{
    action::Action,
    configuration::Configuration,
    model::Protocol,
    mutations::Mutation,
    properties::{self, Rule},
    witness::Witness,
    world::World,
};

/// What a run of the checker has seen.
#[derive(Debug)]
pub struct Checked {
    /// Steps tried.
    pub steps: usize,
    /// States reached, each counted once.
    pub states: usize,
    /// The longest sequence of steps that led to a state not seen before.
    pub depth: usize,
    /// How long it took.
    pub duration: Duration,
    /// Rules that are broken, each with how it came to that.
    pub broken: Vec<(Rule, Vec<String>)>,
    /// What must be seen and was.
    pub seen: Vec<&'static str>,
    /// What must be seen and was not.
    pub unseen: Vec<&'static str>,
}

/// The sequence in which states are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// All of a depth before the next: traces are short.
    Breadth,
    /// One branch after the other: little memory.
    Depth,
}

/// Checks every rule in every state that can be reached; stops at the first that is broken. `tell` hears of the progress.
pub fn check(
    configuration: Configuration,
    search: Search,
    threads: usize,
    tell: impl FnMut(&ReportData) + Send,
) -> Checked {
    let protocol = Protocol { configuration, mutation: None };
    let builder = protocol.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    run(&protocol, builder, search, tell)
}

/// Looks for the rule that a mutation must break: with as few faults and in as few steps as it takes, so that nothing in the trace is
/// beside the point. What is broken on the way to it is given too, behind it.
pub fn catch(mutation: Mutation) -> Checked {
    let mut configuration = mutation.configuration();
    let most = configuration.left.faults;
    for faults in 0..=most {
        configuration.left.faults = faults;
        let protocol = Protocol { configuration: configuration.clone(), mutation: Some(mutation) };
        let checked = look_for(&protocol, mutation.breaks(), None);
        if faults == most || checked.trace_of(mutation.breaks()).is_some() {
            return shortest(&protocol, mutation.breaks(), checked);
        }
    }
    unreachable!("the last number of faults returns")
}

/// The checker goes on for some states after a discovery, and keeps the last: looks again, less and less deep.
fn shortest(protocol: &Protocol, rule: Rule, found: Checked) -> Checked {
    let mut best = found;
    while let Some(steps) = best.trace_of(rule).map(<[String]>::len) {
        // Depth counts states, of which there is one more than steps.
        let again = look_for(protocol, rule, Some(steps));
        if again.trace_of(rule).is_none() {
            break;
        }
        best = again;
    }
    best
}

fn look_for(protocol: &Protocol, rule: Rule, depth_max: Option<usize>) -> Checked {
    let builder = protocol.clone().checker().finish_when(HasDiscoveries::AnyOf(BTreeSet::from([rule.name()])));
    // The checker skips states at the depth it is given.
    let builder = depth_max.into_iter().fold(builder, |builder, depth| builder.target_max_depth(depth + 1));
    let mut checked = run(protocol, builder, Search::Breadth, |_| {});
    checked.broken.sort_by_key(|(broken, _)| *broken != rule);
    checked
}

fn run(
    protocol: &Protocol,
    builder: CheckerBuilder<Protocol>,
    search: Search,
    tell: impl FnMut(&ReportData) + Send,
) -> Checked {
    let mut progress = Progress { tell, duration: Duration::ZERO };
    match search {
        Search::Breadth => {
            let checker = builder.spawn_bfs().join_and_report(&mut progress);
            summary(protocol, &checker, progress.duration)
        }
        Search::Depth => {
            let checker = builder.spawn_dfs().join_and_report(&mut progress);
            summary(protocol, &checker, progress.duration)
        }
    }
}

fn summary(protocol: &Protocol, checker: &impl Checker<Protocol>, duration: Duration) -> Checked {
    let mut discoveries = checker.discoveries();
    let broken = Rule::ALL.into_iter().filter_map(|(rule, name)| Some((rule, discoveries.remove(name)?)));
    let broken = broken.map(|(rule, path)| (rule, trace(protocol, rule, path))).collect();
    let wanted = Witness::ALL.into_iter().filter(|(witness, _)| witness.is_of(protocol.configuration.workload));
    let (seen, unseen) = wanted.map(|(_, name)| name).partition(|name| discoveries.contains_key(name));
    Checked {
        steps: checker.state_count(),
        states: checker.unique_state_count(),
        depth: checker.max_depth().saturating_sub(1),
        duration,
        broken,
        seen,
        unseen,
    }
}

/// The way to the first state in which the rule is broken, a line a step.
fn trace(protocol: &Protocol, rule: Rule, path: Path<World, Action>) -> Vec<String> {
    let mut lines = Vec::new();
    for (world, action) in path.into_vec() {
        let is_broken = !rule.is_eventual() && !properties::is_kept(rule, protocol, &world);
        let Some(action) = action.filter(|_| !is_broken) else { break };
        lines.push(format!("{:2}. {}", lines.len() + 1, protocol.words(&world, action).join("; ")));
    }
    lines
}

impl Checked {
    /// How this rule came to be broken, if it is.
    pub fn trace_of(&self, rule: Rule) -> Option<&[String]> {
        self.broken.iter().find(|(broken, _)| *broken == rule).map(|(_, trace)| &trace[..])
    }
}

/// Passes the checker's progress on, and keeps the time.
struct Progress<T> {
    tell: T,
    duration: Duration,
}

impl<T: FnMut(&ReportData)> Reporter<Protocol> for Progress<T> {
    fn report_checking(&mut self, data: ReportData) {
        self.duration = data.duration;
        (self.tell)(&data);
    }

    fn report_discoveries(&mut self, _: &Protocol, _: BTreeMap<&'static str, ReportDiscovery<Protocol>>) {}

    fn delay(&self) -> Duration {
        Duration::from_millis(20)
    }
}
