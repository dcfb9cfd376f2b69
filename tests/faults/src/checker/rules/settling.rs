//! A key whose client is gone is settled by somebody within a lease and ten seconds, as long as no fault prevents it. Payments are
//! apart: they may wait for the acquirer.

use std::collections::BTreeMap;

use crate::{
    checker::{Case, Violation, case::GRACE_MS},
    history::{TokenSample, TokenStore},
};

pub(super) const NAME: &str = "settling";

/// Beyond one lease, as it is promised.
const PROMISED_MS: u64 = 10_000;
/// A look takes a moment.
const LOOK_MS: u64 = 1_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut series = BTreeMap::<&str, Vec<&TokenSample>>::new();
    for sample in case.history.tokens.iter().filter(|sample| sample.store == TokenStore::Idem) {
        series.entry(&sample.name).or_default().push(sample);
    }
    let allowed = case.history.course.lease_ms + PROMISED_MS + LOOK_MS;
    let mut found = Vec::new();
    for (name, samples) in series {
        let is_payment = |sample: &TokenSample| {
            case.operations.get(sample.operation.as_str()).is_some_and(|it| it.kind.as_deref() == Some("pay"))
        };
        for span in open_spans(&case.history.token_looks, &samples).filter(|(first, _)| !is_payment(first)) {
            let (from_ms, until_ms) = (span.0.ms, span.1);
            let calm = longest_calm(case, from_ms, until_ms);
            if calm > allowed {
                let what =
                    format!("key {name} was open from {from_ms} to {until_ms} ms, {calm} ms of it without a fault");
                found.push(Violation::new(NAME, what).about(&span.0.operation).at(until_ms));
            }
        }
    }
    found
}

/// From when to when a key was certainly open: from when it was first seen so until the last look before it was seen settled.
fn open_spans<'s>(looks: &'s [u64], samples: &'s [&TokenSample]) -> impl Iterator<Item = (&'s TokenSample, u64)> {
    let is_open = |sample: &TokenSample| matches!(sample.state.as_str(), "in_progress" | "in_doubt");
    samples.chunk_by(move |one, other| is_open(one) && is_open(other)).filter_map(move |span| {
        let (first, last) = (span.first()?, span.last()?);
        let settled_ms = samples.iter().find(|sample| sample.ms > last.ms).map_or(u64::MAX, |sample| sample.ms);
        let until_ms = looks.iter().rev().copied().find(|look| *look < settled_ms)?;
        is_open(first).then_some((*first, until_ms))
    })
}

/// The longest time between two moments without a fault, or its aftermath, at work.
fn longest_calm(case: &Case<'_>, from_ms: u64, until_ms: u64) -> u64 {
    let mut windows: Vec<_> = case.windows.iter().filter(|it| it.overlaps(from_ms, until_ms)).collect();
    windows.sort_by_key(|window| window.from_ms);
    let (mut calm, mut since) = (0, from_ms);
    for window in windows {
        calm = calm.max(window.from_ms.saturating_sub(since));
        since = since.max(window.until_ms.map_or(u64::MAX, |end| end + GRACE_MS));
    }
    calm.max(until_ms.saturating_sub(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checker::fixture::Fixture, edge::Window};

    fn open_for(key: &str, ms: u64, windows: &[(u64, u64)]) -> Vec<String> {
        let mut fixture = Fixture::good();
        let (operation, name) = (fixture.key_row(key).operation.clone(), format!("rest/a {key}"));
        let sample = |ms: u64, state: &str| TokenSample {
            ms,
            store: TokenStore::Idem,
            name: name.clone(),
            operation: operation.clone(),
            token: 1,
            state: state.into(),
        };
        fixture.history.tokens =
            vec![sample(1_000, "in_progress"), sample(2_000, "in_doubt"), sample(9_000 + ms, "completed")];
        fixture.history.token_looks = vec![1_000, 2_000, 1_000 + ms, 9_000 + ms];
        let window = |(from_ms, until_ms): &(u64, u64)| Window {
            fault: "kill".into(),
            target: "gateway-0".into(),
            from_ms: *from_ms,
            until_ms: Some(*until_ms),
        };
        fixture.windows = windows.iter().map(window).collect();
        fixture.broken(check)
    }

    #[test]
    fn a_key_that_nobody_settles_is_reported() {
        assert_eq!(open_for("k1", 13_000, &[]), Vec::<String>::new());
        assert!(open_for("k1", 13_001, &[])[0].contains("was open from 1000 to 14001 ms, 13001 ms of it"));
        // A payment may wait for the acquirer.
        assert_eq!(open_for("k2", 90_000, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_fault_gives_time_to_settle_from_its_end_on() {
        assert_eq!(open_for("k1", 33_000, &[(10_000, 17_000)]), Vec::<String>::new());
        assert!(open_for("k1", 36_000, &[(10_000, 17_000)])[0].contains("15000 ms of it without a fault"));
        assert!(open_for("k1", 40_000, &[(30_000, 31_000)])[0].contains("29000 ms of it without a fault"));
    }
}
