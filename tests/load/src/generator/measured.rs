//! What was measured: how many, how long each took, and what was not as it should be.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Longer than this is counted as this.
const LATENCY_MAX: Duration = Duration::from_secs(120);

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Right answers within the time that counts.
    pub count: u64,
    /// That time.
    pub elapsed: Duration,
    /// How long they took, in microseconds.
    pub latency: Histogram<u64>,
    /// Wrong answers, at whatever time, by what they were.
    pub unexpected: BTreeMap<String, u64>,
}

// === impl Measured ===

impl Measured {
    /// Nothing yet.
    pub fn new() -> Self {
        let longest = u64::try_from(LATENCY_MAX.as_micros()).expect("two minutes fit");
        let latency = Histogram::new_with_bounds(1, longest, 3).expect("bounds that hdrhistogram accepts");
        Self { count: 0, elapsed: Duration::ZERO, latency, unexpected: BTreeMap::new() }
    }

    /// A right answer that took so long.
    pub fn record(&mut self, took: Duration) {
        self.count += 1;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// A wrong answer.
    pub fn record_unexpected(&mut self, what: String) {
        *self.unexpected.entry(what).or_default() += 1;
    }

    /// Right answers a second.
    pub fn rate(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.count as f64 / self.elapsed.as_secs_f64() }
    }

    /// The latency below which this share of the answers came, in milliseconds.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// A number is worth something only when every answer behind it was right.
    pub fn checked(self) -> anyhow::Result<Self> {
        ensure!(self.unexpected.is_empty(), "unexpected answers: {}", self.unexpected_text());
        ensure!(self.count > 0, "there was no answer at all");
        Ok(self)
    }

    /// One line.
    pub fn line(&self) -> String {
        let wrong =
            if self.unexpected.is_empty() { String::new() } else { format!(", UNEXPECTED {}", self.unexpected_text()) };
        format!(
            "{:.0}/s, p50 {:.2} ms, p99 {:.2} ms, {} answers{wrong}",
            self.rate(),
            self.quantile_ms(0.5),
            self.quantile_ms(0.99),
            self.count
        )
    }

    /// For `--json` and between processes; the histogram itself stays here.
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.count,
            "seconds": self.elapsed.as_secs_f64(),
            "rate": self.rate(),
            "p50Ms": self.quantile_ms(0.5),
            "p90Ms": self.quantile_ms(0.9),
            "p99Ms": self.quantile_ms(0.99),
            "p999Ms": self.quantile_ms(0.999),
            "maxMs": self.latency.max() as f64 / 1000.0,
            "unexpected": self.unexpected,
        })
    }

    /// What another process of this program has said by [`to_json`](Self::to_json): its histogram is not among it, only its
    /// middle and its end.
    pub fn from_json(value: &Value) -> anyhow::Result<Self> {
        let number = |name: &str| value[name].as_f64().with_context(|| format!("{name} is missing"));
        let mut measured = Self::new();
        for quantile in ["p50Ms", "p99Ms"] {
            measured.latency.saturating_record(((number(quantile)? * 1000.0) as u64).max(1));
        }
        measured.count = value["count"].as_u64().context("count is missing")?;
        measured.elapsed = Duration::from_secs_f64(number("seconds")?);
        measured.unexpected = serde_json::from_value(value["unexpected"].clone()).context("unexpected is missing")?;
        Ok(measured)
    }

    fn unexpected_text(&self) -> String {
        let each: Vec<String> = self.unexpected.iter().map(|(what, count)| format!("{count} × {what}")).collect();
        each.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_answer_fails_the_run_and_is_named() {
        let mut measured = Measured::new();
        measured.record(Duration::from_millis(2));
        measured.elapsed = Duration::from_secs(1);
        assert_eq!(measured.clone().checked().unwrap().rate(), 1.0);
        measured.record_unexpected("503 {}".to_owned());
        assert!(measured.checked().unwrap_err().to_string().contains("1 × 503 {}"));
    }

    #[test]
    fn silence_is_no_measurement() {
        assert!(Measured::new().checked().is_err());
    }
}
