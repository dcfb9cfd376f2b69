//! Who has used the processors: every program of a run by its name, Postgres with all its backends.

use std::{collections::BTreeMap, fmt::Write as _, thread, time::Duration};

use tokio::time::Instant;

use super::machine;

/// This program itself, which asks.
const GENERATOR: &str = "generator";
/// Programs of this binary, which are compared with.
const BASELINE: &str = "baseline";

/// Reads the times of some processes and of all that they have started.
#[derive(Clone, Debug)]
pub struct Meter {
    others: Vec<u32>,
}

/// What had been used at a moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    used: BTreeMap<u32, (String, Duration)>,
}

/// Of one core each: 0.5 is half the time.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Shares(BTreeMap<String, f64>);

// === impl Meter ===

impl Meter {
    /// Of this process, `others`, and their descendants.
    pub fn of(others: &[u32]) -> Self {
        Self { others: others.to_vec() }
    }

    /// What they have used so far.
    pub fn read(&self) -> anyhow::Result<Reading> {
        let all = machine::processes()?;
        let own = std::process::id();
        let mut wanted: Vec<u32> = std::iter::once(own).chain(self.others.iter().copied()).collect();
        let mut next = 0;
        while let Some(parent) = wanted.get(next).copied() {
            next += 1;
            let children = all.iter().filter(|process| process.parent == parent).map(|process| process.pid);
            let new: Vec<u32> = children.filter(|pid| !wanted.contains(pid)).collect();
            wanted.extend(new);
        }
        let own_name = all.iter().find(|process| process.pid == own).map(|process| process.name.clone());
        let named = |process: machine::Process| {
            let name = match process.pid {
                pid if pid == own => GENERATOR.to_owned(),
                _ if Some(&process.name) == own_name.as_ref() => BASELINE.to_owned(),
                _ => process.name,
            };
            // Connections come and go with the rounds; programs that this one starts are read while they run.
            let ended = if self.others.contains(&process.pid) { process.used_by_ended } else { Duration::ZERO };
            (process.pid, (name, process.used + ended))
        };
        let used = all.into_iter().filter(|process| wanted.contains(&process.pid)).map(named).collect();
        Ok(Reading { at: Instant::now(), used })
    }
}

// === impl Reading ===

impl Reading {
    /// What has been used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Shares {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        let mut shares = BTreeMap::<String, f64>::new();
        for (pid, (name, used)) in &self.used {
            let before = earlier.used.get(pid).map_or(Duration::ZERO, |(_, before)| *before);
            *shares.entry(name.clone()).or_default() += used.saturating_sub(before).as_secs_f64() / seconds;
        }
        Shares(shares)
    }
}

// === impl Shares ===

impl Shares {
    /// Of this one.
    pub fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The middle of several, name by name.
    pub fn median(of: &[Self]) -> Self {
        let names = of.iter().flat_map(|shares| shares.0.keys().cloned());
        let middle = |name: String| {
            let each: Vec<f64> = of.iter().map(|shares| shares.0.get(&name).copied().unwrap_or_default()).collect();
            (name, crate::compare::median(&each))
        };
        Self(names.map(middle).collect())
    }

    /// One line: the microseconds of processor time that an answer took of each, at `rate` answers a second, most first. What nobody of
    /// these used is idle, or somebody else's.
    pub fn an_answer(&self, rate: f64) -> String {
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let micros = |share: f64| 1e6 * share / rate;
        let mut each: Vec<(&str, f64)> = self.0.iter().map(|(name, share)| (name.as_str(), micros(*share))).collect();
        each.sort_by(|one, other| other.1.total_cmp(&one.1));
        let sum: f64 = self.0.values().sum();
        let mut line = String::new();
        for (name, micros) in each.into_iter().filter(|(_, micros)| *micros >= 0.5) {
            let _ = write!(line, "{name} {micros:.0}, ");
        }
        let _ = write!(line, "in all {:.0} µs of {:.0}", micros(sum), micros(cores));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, used: &[(u32, &str, u64)]) -> Reading {
        let used = used.iter().map(|(pid, name, ms)| (*pid, ((*name).to_owned(), Duration::from_millis(*ms))));
        Reading { at, used: used.collect() }
    }

    #[test]
    fn backends_are_one_postgres_and_one_that_came_later_counts_from_its_start() {
        let from = Instant::now();
        let before = reading(from, &[(1, "postgres", 100), (2, "postgres", 50), (3, "gateway", 0)]);
        let later = from + Duration::from_secs(2);
        let after = reading(later, &[(1, "postgres", 200), (3, "gateway", 400), (4, "postgres", 300)]);
        let shares = after.since(&before);
        assert_eq!(shares, Shares([("gateway".to_owned(), 0.2), ("postgres".to_owned(), 0.2)].into()));
        assert!(shares.an_answer(1000.0).contains("gateway 200, postgres 200, in all 400 µs of"), "{shares:?}");
    }

    #[test]
    fn this_process_is_the_generator_and_its_time_grows() {
        let meter = Meter::of(&[]);
        let before = meter.read().unwrap();
        let until = Instant::now() + Duration::from_millis(60);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let Shares(shares) = meter.read().unwrap().since(&before);
        assert!(shares[GENERATOR] > 0.1, "{shares:?}");
    }
}
