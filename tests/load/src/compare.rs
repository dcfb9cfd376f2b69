//! Two things measured in turn on one machine, and the ratio of their medians.
//!
//! Absolute figures of a shared machine drift by a factor of two within hours, so only ratios within one run count.

use std::fmt;

use futures::future::LocalBoxFuture;

use crate::{
    generator::measured::Measured,
    say,
    stage::meter::{Meter, Shares},
};

/// One of those that are measured in turn.
pub struct Side<'s> {
    /// As in the report.
    pub name: String,
    run: Box<dyn FnMut(usize) -> LocalBoxFuture<'s, anyhow::Result<Measured>> + 's>,
}

/// What one side came to, round by round.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// As in the report.
    pub name: String,
    /// In the order of the rounds.
    pub each: Vec<Measured>,
    /// Who used the processors meanwhile.
    pub shares: Vec<Shares>,
}

/// A median, and how far the rounds were apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The ratio of the medians, or the median.
    pub middle: f64,
    /// The lowest of a round.
    pub min: f64,
    /// The highest of a round.
    pub max: f64,
}

// === impl Side ===

impl<'s> Side<'s> {
    /// `run` measures once; it is told the number of the round.
    pub fn new<F>(name: impl Into<String>, mut run: impl FnMut(usize) -> F + 's) -> Self
    where
        F: Future<Output = anyhow::Result<Measured>> + 's,
    {
        Self { name: name.into(), run: Box::new(move |round| Box::pin(run(round))) }
    }
}

/// A B A B …: whatever else the machine does meets all sides alike.
pub async fn alternate(rounds: usize, meter: &Meter, mut sides: Vec<Side<'_>>) -> anyhow::Result<Vec<Rounds>> {
    let mut all: Vec<Rounds> = sides.iter().map(|side| Rounds::named(&side.name)).collect();
    for round in 0..rounds {
        for (side, rounds_of) in sides.iter_mut().zip(&mut all) {
            let before = meter.read()?;
            let measured = (side.run)(round).await.map_err(|error| error.context(side.name.clone()))?.checked();
            rounds_of.shares.push(meter.read()?.since(&before));
            let measured = measured.map_err(|error| error.context(side.name.clone()))?;
            say::progress(&format!("{}, round {}: {}", side.name, round + 1, measured.line()));
            rounds_of.each.push(measured);
        }
    }
    Ok(all)
}

// === impl Rounds ===

impl Rounds {
    /// None yet.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), each: Vec::new(), shares: Vec::new() }
    }

    /// One line: where the processor time of an answer went, in the middle of the rounds; none when nobody looked.
    pub fn cost(&self) -> Option<String> {
        let shares = (!self.shares.is_empty()).then(|| Shares::median(&self.shares))?;
        Some(format!("{}: {}", self.name, shares.an_answer(median(&self.rates()))))
    }

    /// Microseconds of processor time that an answer took of these, round by round.
    pub fn cost_of(&self, names: &[&str]) -> Vec<f64> {
        let each = self.shares.iter().zip(self.rates());
        each.map(|(shares, rate)| 1e6 * names.iter().map(|name| shares.of(name)).sum::<f64>() / rate).collect()
    }

    /// Answers a second, round by round.
    pub fn rates(&self) -> Vec<f64> {
        self.each.iter().map(Measured::rate).collect()
    }

    /// One line: what an open loop is asked for.
    pub fn latencies(&self) -> String {
        let [rate, p50, p99] = [self.rates(), self.quantiles(0.5), self.quantiles(0.99)].map(|each| Spread::of(&each));
        format!("{}: {rate} /s, p50 {p50} ms, p99 {p99} ms", self.name)
    }

    /// A quantile of the latency in milliseconds, round by round.
    pub fn quantiles(&self, quantile: f64) -> Vec<f64> {
        self.each.iter().map(|measured| measured.quantile_ms(quantile)).collect()
    }
}

// === impl Spread ===

impl Spread {
    /// The median of these.
    pub fn of(values: &[f64]) -> Self {
        let (min, max) = ends(values);
        Self { middle: median(values), min, max }
    }

    /// The ratio of the medians; the ends are those of the rounds' own ratios.
    pub fn ratio(of: &[f64], to: &[f64]) -> Self {
        let each: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        let (min, max) = ends(&each);
        Self { middle: median(of) / median(to), min, max }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.middle.abs() >= 100.0 { 0 } else { 2 };
        write!(f, "{:.digits$} ({:.digits$}..{:.digits$})", self.middle, self.min, self.max)
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(*value), max.max(*value)))
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;

    #[test]
    fn a_ratio_is_that_of_the_medians_and_its_ends_are_those_of_the_rounds() {
        let ratio = Spread::ratio(&[300.0, 100.0, 200.0], &[100.0, 100.0, 50.0]);
        assert_eq!(ratio, Spread { middle: 2.0, min: 1.0, max: 4.0 });
        assert_eq!(ratio.to_string(), "2.00 (1.00..4.00)");
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).middle, 2.5);
        assert!(median(&[]).is_nan());
    }

    #[tokio::test]
    async fn sides_take_turns_and_a_wrong_answer_ends_the_comparison() {
        let turns = RefCell::new(Vec::new());
        let good = || {
            let mut measured = Measured::new();
            measured.record(Duration::from_millis(1));
            measured.elapsed = Duration::from_secs(1);
            measured
        };
        let turn = |name: &'static str| {
            let turns = &turns;
            Side::new(name, move |round| async move {
                turns.borrow_mut().push(format!("{name}{round}"));
                Ok(good())
            })
        };
        let all = alternate(2, &Meter::of(&[]), vec![turn("a"), turn("b")]).await.unwrap();
        assert_eq!(*turns.borrow(), ["a0", "b0", "a1", "b1"]);
        assert_eq!((all[0].name.as_str(), all[1].rates()), ("a", vec![1.0, 1.0]));

        let wrong = Side::new("wrong", |_| async move {
            let mut measured = good();
            measured.record_unexpected("500".to_owned());
            Ok(measured)
        });
        let error = alternate(1, &Meter::of(&[]), vec![wrong]).await.unwrap_err();
        assert!(format!("{error:#}").contains("wrong: unexpected answers: 1 × 500"), "{error:#}");
    }
}
