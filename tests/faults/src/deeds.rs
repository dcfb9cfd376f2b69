//! What the nemesis did and what the world saw by itself, added to the report.

use std::{collections::BTreeMap, fmt, fs::OpenOptions, io::Write as _, path::Path};

use anyhow::Context;
use serde::Serialize;

use crate::{
    checker::Violation,
    nemesis::Done,
    world::{World, heartbeat::STARVED, incidents::Incident},
};

/// The file of the deeds, in the directory of a run.
const FILE: &str = "nemesis.json";

/// Both.
#[derive(Debug, Serialize)]
pub struct Deeds {
    /// How many of each kind were carried out.
    counts: BTreeMap<&'static str, usize>,
    /// Each fault as it was carried out.
    done: Vec<Done>,
    /// What the world saw by itself.
    incidents: Vec<Incident>,
    /// Lines of the logs in which something panicked.
    panics: Vec<String>,
    /// Forged webhooks that were refused.
    forgeries_refused: u64,
    /// How the disk was filled, if there was one to fill.
    disk: Option<&'static str>,
    /// How many seconds of the campaign the machine itself did not keep up.
    starved_s: u64,
}

// === impl Deeds ===

impl Deeds {
    /// When a campaign is over.
    pub fn of(world: &World, done: Vec<Done>, directory: &Path) -> Self {
        let mut counts = BTreeMap::new();
        for fault in done.iter().filter(|done| done.trouble.is_none()) {
            *counts.entry(fault.fault.kind.name()).or_default() += 1;
        }
        Self {
            counts,
            done,
            incidents: world.incidents().snapshot(),
            panics: world.panics(directory),
            forgeries_refused: world.webhooks().forgeries_refused(),
            disk: world.disk().ok().map(|disk| disk.describe()),
            starved_s: starved_s(world),
        }
    }

    /// What must not happen, whatever the nemesis does.
    pub fn violations(&self) -> Vec<String> {
        let seen = self.incidents.iter().filter(|incident| incident.is_violation);
        let seen = seen.map(|incident| Violation::new("world", &incident.what).at(incident.at_ms).to_string());
        seen.chain(self.panics.iter().map(|line| format!("a panic in {line}"))).collect()
    }

    /// Into a file of its own, for programs, and to the end of the report, for people.
    pub fn write(&self, directory: &Path, report: &Path) -> anyhow::Result<()> {
        std::fs::write(directory.join(FILE), serde_json::to_vec_pretty(self)?).context(FILE)?;
        let mut file = OpenOptions::new().append(true).open(report).context("the report")?;
        writeln!(file, "\n## What the nemesis did\n\n```\n{self}```\n")?;
        for fault in &self.done {
            let trouble = fault.trouble.as_deref().map(|why| format!(" — not done: {why}")).unwrap_or_default();
            writeln!(file, "    {}  from {} to {} ms{trouble}", fault.fault, fault.from_ms, fault.until_ms)?;
        }
        writeln!(file, "\n## What the world saw by itself\n")?;
        for incident in &self.incidents {
            let word = if incident.is_violation { "VIOLATION" } else { "note" };
            writeln!(file, "- {} ms, {word}: {}", incident.at_ms, incident.what)?;
        }
        self.panics.iter().try_for_each(|line| writeln!(file, "- VIOLATION: a panic in {line}"))?;
        Ok(())
    }
}

impl fmt::Display for Deeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.counts.values().sum();
        let each: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "{total} faults: {}", each.join(", "))?;
        if self.forgeries_refused > 0 {
            writeln!(f, "{} forged webhooks refused", self.forgeries_refused)?;
        }
        if self.starved_s > 0 {
            let hint = "nothing is said of availability then";
            writeln!(
                f,
                "for {} s the machine itself did not keep up, being busy with something else: {hint}",
                self.starved_s
            )?;
        }
        match self.disk {
            Some(disk) if self.counts.contains_key("disk-full") => writeln!(f, "the disk that was full: {disk}"),
            _ => Ok(()),
        }
    }
}

// === helpers ===

fn starved_s(world: &World) -> u64 {
    let windows = world.edge().windows.snapshot();
    let starved = windows.iter().filter(|window| window.fault == STARVED);
    starved.map(|window| window.until_ms.unwrap_or(window.from_ms) - window.from_ms).sum::<u64>() / 1_000
}
