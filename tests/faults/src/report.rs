//! The report: what was done, what was seen, what was judged, and the whole story of everything that was wrong.

mod figures;
mod page;
mod story;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    checker::{self, Case, Violation},
    edge::Window,
    history::History,
    ledger::Ledger,
};

use self::{figures::Figures, story::Story};

/// Nobody reads more stories than this.
const STORIES_MAX: usize = 40;

/// A run and its verdict.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Repeats the run.
    pub command: String,
    /// Of all its randomness.
    pub seed: u64,
    /// Nothing was violated.
    pub is_good: bool,
    /// The rules that were checked.
    pub rules: Vec<&'static str>,
    /// Numbers.
    pub figures: Figures,
    /// Everything that was violated.
    pub violations: Vec<Violation>,
    /// What led to the first of them.
    pub stories: Vec<Story>,
}

impl Report {
    /// Of a run and what its checker found.
    pub fn of(history: &History, ledger: &Ledger, windows: &[Window], violations: &[Violation]) -> Self {
        let case = Case::new(history, ledger, windows);
        Self {
            command: history.course.command.clone(),
            seed: history.course.seed,
            is_good: violations.is_empty(),
            rules: checker::rules(),
            figures: Figures::of(&case),
            violations: violations.to_vec(),
            stories: violations.iter().take(STORIES_MAX).map(|violation| Story::of(&case, violation)).collect(),
        }
    }
}

/// Writes `report.json` for programs and `report.md` for people; returns where the latter is.
pub fn write(report: &Report, directory: &Path) -> anyhow::Result<PathBuf> {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        anyhow::Ok(path)
    };
    write("report.json", serde_json::to_string_pretty(report)?)?;
    write("report.md", page::of(report))
}
