//! The page of metrics as Prometheus reads it, taken apart again: what `/metrics` shows and what OTLP carries can then never differ.

use std::collections::BTreeMap;

/// Names and values, in the order of the page.
pub(super) type Labels = Vec<(String, String)>;

/// What was counted under one name.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) series: Vec<Series>,
}

/// One set of labels, and its value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

/// What is known of a series.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Counter(f64),
    Gauge(f64),
    /// Counts by upper bound, each on its own and not summed up; the last is for whatever is larger.
    Histogram {
        bounds: Vec<f64>,
        counts: Vec<u64>,
        sum: f64,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A histogram whose lines are still coming.
#[derive(Default)]
struct Buckets {
    bounds: Vec<f64>,
    sums: Vec<u64>,
    sum: f64,
}

/// The families of a page. A line that cannot be read is left out, as is a kind that nobody uses here.
pub(super) fn read(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let (mut help, mut kind) = (String::new(), None);
    let mut histograms: BTreeMap<Labels, Buckets> = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, text)| text).to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            finish(&mut families, &mut histograms);
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            kind = kind_of(text.trim());
            families.push(Family { name: name.to_owned(), help: std::mem::take(&mut help), series: Vec::new() });
        } else if let (Some(kind), Some(family), Some((name, labels, value))) =
            (kind, families.last_mut(), sample(line))
        {
            match kind {
                Kind::Counter => family.series.push(Series { labels, value: Value::Counter(value) }),
                Kind::Gauge => family.series.push(Series { labels, value: Value::Gauge(value) }),
                Kind::Histogram => bucket(&mut histograms, name.strip_prefix(family.name.as_str()), labels, value),
            }
        }
    }
    finish(&mut families, &mut histograms);
    families.retain(|family| !family.series.is_empty());
    families
}

fn kind_of(text: &str) -> Option<Kind> {
    match text {
        "counter" => Some(Kind::Counter),
        "gauge" => Some(Kind::Gauge),
        "histogram" => Some(Kind::Histogram),
        _ => None,
    }
}

fn bucket(histograms: &mut BTreeMap<Labels, Buckets>, part: Option<&str>, mut labels: Labels, value: f64) {
    let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
    let buckets = histograms.entry(labels).or_default();
    match (part, bound) {
        (Some("_bucket"), Some(bound)) => {
            buckets.bounds.extend(bound.parse().ok().filter(|bound: &f64| bound.is_finite()));
            buckets.sums.push(value as u64);
        }
        (Some("_sum"), None) => buckets.sum = value,
        _ => {}
    }
}

/// Puts the histograms that have been gathered into the last family.
fn finish(families: &mut [Family], histograms: &mut BTreeMap<Labels, Buckets>) {
    let Some(family) = families.last_mut() else { return };
    for (labels, Buckets { bounds, sums, sum }) in std::mem::take(histograms) {
        let below = std::iter::once(0).chain(sums.iter().copied());
        let counts = sums.iter().zip(below).map(|(sum, below)| sum.saturating_sub(below)).collect();
        family.series.push(Series { labels, value: Value::Histogram { bounds, counts, sum } });
    }
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, text) = rest.split_once("=\"")?;
            let (value, after) = quoted(text)?;
            labels.push((label.trim_start_matches(',').to_owned(), value));
            rest = after;
        }
        rest = &rest[1..];
    }
    Some((name, labels, rest.split_whitespace().next()?.parse().ok()?))
}

/// A value up to its closing quote, and what comes after that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total what was counted\n# TYPE a_total counter\na_total{route=\"POST /v1/orders/{id}\",q=\"a\\\"b\\\\c\"} 3\na_total 4\n\n\
        # TYPE depth gauge\ndepth 2.5\n\n# TYPE gone gauge\ngone NaN\n\n\
        # TYPE took_seconds histogram\ntook_seconds_bucket{code=\"OK\",le=\"0.5\"} 1\ntook_seconds_bucket{code=\"OK\",le=\"1\"} 4\n\
        took_seconds_bucket{code=\"OK\",le=\"+Inf\"} 6\ntook_seconds_sum{code=\"OK\"} 7.25\ntook_seconds_count{code=\"OK\"} 6\n";

    #[test]
    fn every_kind_is_read_with_its_labels() {
        let families = read(PAGE);
        let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
        assert_eq!(names, ["a_total", "depth", "gone", "took_seconds"]);
        assert_eq!(families[0].help, "what was counted");
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(families[0].series[0].labels, [label("route", "POST /v1/orders/{id}"), label("q", "a\"b\\c")]);
        assert_eq!(families[0].series[1], Series { labels: vec![], value: Value::Counter(4.0) });
        assert!(matches!(families[2].series[0].value, Value::Gauge(gone) if gone.is_nan()));
        let took = Value::Histogram { bounds: vec![0.5, 1.0], counts: vec![1, 3, 2], sum: 7.25 };
        assert_eq!(families[3].series, [Series { labels: vec![label("code", "OK")], value: took }]);
    }

    #[test]
    fn nonsense_is_left_out() {
        assert_eq!(read("what{is=\"this\n# TYPE a counter\na{b=\"c} 1\na{} x\n# TYPE s summary\ns 1\n"), []);
    }
}
