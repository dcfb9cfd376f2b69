//! What was promised, and what was measured.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    compare::{Rounds, Spread},
    workload::Workload,
};

/// One promise.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What is promised.
    pub what: String,
    /// What was measured.
    pub measured: Spread,
    /// ×, ms, MB and so on.
    pub unit: &'static str,
    /// How much it must be.
    pub required: Required,
}

/// Which way a bar is met.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Required {
    /// The middle is this or more.
    AtLeast(f64),
    /// The middle is this or less.
    AtMost(f64),
}

/// What a workload came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the workload.
    pub workload: String,
    /// Its promises.
    pub bars: Vec<Bar>,
    /// All that was measured for them.
    pub sides: Vec<Rounds>,
    /// Why there is no result.
    pub failure: Option<String>,
}

// === impl Bar ===

impl Bar {
    /// At least this many times as much.
    pub fn times(what: impl Into<String>, measured: Spread, at_least: f64) -> Self {
        Self { what: what.into(), measured, unit: "×", required: Required::AtLeast(at_least) }
    }

    /// At most this much.
    pub fn at_most(what: impl Into<String>, measured: Spread, unit: &'static str, at_most: f64) -> Self {
        Self { what: what.into(), measured, unit, required: Required::AtMost(at_most) }
    }

    /// What is not a number meets nothing.
    pub fn is_met(&self) -> bool {
        match self.required {
            Required::AtLeast(least) => self.measured.middle >= least,
            Required::AtMost(most) => self.measured.middle <= most,
        }
    }

    fn cells(&self) -> [String; 4] {
        let required = match self.required {
            Required::AtLeast(least) => format!("≥ {least} {}", self.unit),
            Required::AtMost(most) => format!("≤ {} {}", short(most), self.unit),
        };
        let verdict = if self.is_met() { "ok" } else { "NOT" };
        [self.what.clone(), format!("{} {}", self.measured, self.unit), required, verdict.to_owned()]
    }

    fn to_json(&self) -> Value {
        let (required, value) = match self.required {
            Required::AtLeast(least) => ("atLeast", least),
            Required::AtMost(most) => ("atMost", most),
        };
        json!({
            "what": self.what, "measured": self.measured.middle, "min": self.measured.min, "max": self.measured.max,
            "unit": self.unit, required: value, "met": self.is_met(),
        })
    }
}

// === impl Report ===

impl Report {
    /// A result.
    pub fn new(workload: &str, bars: Vec<Bar>, sides: Vec<Rounds>) -> Self {
        Self { workload: workload.to_owned(), bars, sides, failure: None }
    }

    /// A workload that came to nothing: one bar, not met.
    pub fn failed(workload: Workload, error: &anyhow::Error) -> Self {
        let name = workload.name();
        let nothing = Spread { middle: f64::NAN, min: f64::NAN, max: f64::NAN };
        let bar = Bar::times(format!("{name} did not come to an end"), nothing, 1.0);
        Self { failure: Some(format!("{name}: {error:#}")), ..Self::new(&name, vec![bar], Vec::new()) }
    }

    /// For `--json`.
    pub fn to_json(&self) -> Value {
        let side = |side: &Rounds| {
            let each: Vec<Value> = side.each.iter().map(|measured| measured.to_json()).collect();
            json!({"name": side.name, "rounds": each})
        };
        let bars: Vec<Value> = self.bars.iter().map(Bar::to_json).collect();
        json!({"workload": self.workload, "failure": self.failure, "bars": bars, "sides": self.sides.iter().map(side).collect::<Vec<_>>()})
    }
}

/// All bars as one table, which Markdown reads too.
pub fn table(bars: &[&Bar]) -> String {
    let head = ["bar", "measured", "required", ""].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(bars.iter().map(|bar| bar.cells())).collect();
    let widths: Vec<usize> =
        (0..4).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            widths.iter().for_each(|width| {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            });
            text.push_str("|\n");
        }
    }
    text
}

fn short(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(middle: f64) -> Spread {
        Spread { middle, min: middle, max: middle }
    }

    #[test]
    fn a_bar_is_met_at_its_value_and_never_by_what_is_not_a_number() {
        assert!(Bar::times("", spread(3.0), 3.0).is_met());
        assert!(!Bar::times("", spread(2.99), 3.0).is_met());
        assert!(Bar::at_most("", spread(50.0), "ms", 50.0).is_met());
        assert!(!Bar::at_most("", spread(50.1), "ms", 50.0).is_met());
        assert!(
            !Bar::times("", spread(f64::NAN), 3.0).is_met() && !Bar::at_most("", spread(f64::NAN), "", 3.0).is_met()
        );
    }

    #[test]
    fn the_table_says_of_each_bar_what_was_measured_and_what_is_required() {
        let (good, bad) = (Bar::times("pairs", spread(4.0), 3.0), Bar::at_most("p99", spread(2.5), "ms", 1.25));
        let table = table(&[&good, &bad]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].contains("pairs") && lines[2].contains("4.00 (4.00..4.00) ×") && lines[2].ends_with("ok  |"));
        assert!(lines[3].contains("≤ 1.25 ms") && lines[3].contains("NOT"));
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{table}");
    }
}
