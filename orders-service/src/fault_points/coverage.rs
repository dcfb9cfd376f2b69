//! Every point that the source names is crossed by some scenario: an await without a test fails here.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{ALL, bench::Bench, every};

/// The source of this crate's use cases and rows.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    found
}

fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("fault_points") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("fault_points.rs") {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What stands between each `open` and the next `close`, white space between `open` and the text left out.
fn between<'t>(text: &'t str, open: &str, close: char) -> Vec<&'t str> {
    let after = text.split(open).skip(1);
    after.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split(close).next()).collect()
}

#[tokio::test]
async fn every_point_is_crossed_by_a_scenario() {
    let bench = Bench::on_sqlite().await;
    let mut crossed = BTreeSet::new();
    for scenario in ALL {
        crossed.extend(every::crossed(&bench, *scenario).await.into_iter().map(|crossing| crossing.point));
    }
    let mut known = BTreeSet::new();
    for (_, text) in sources() {
        known.extend(between(&text, "fault_point!(", '"').into_iter().map(str::to_owned));
        for open in [".act(", ".transact("] {
            let names = between(&text, open, '"');
            known.extend(names.iter().flat_map(|it| ["begin", "commit", "committed"].map(|at| format!("{it}: {at}"))));
        }
        known.extend(
            between(&text, ".read(", '"').iter().flat_map(|it| ["begin", "commit"].map(|at| format!("{it}: {at}"))),
        );
    }
    assert!(known.len() > 60, "the source names only {} points", known.len());
    let missed: Vec<_> = known.difference(&crossed).collect();
    assert!(missed.is_empty(), "no scenario crosses {missed:?}");

    // Statements are points by their own names, in whatever transaction they run.
    let named =
        |text: &str| text.lines().filter_map(|line| line.strip_prefix("-- orders.")).map(str::to_owned).collect();
    let statements: BTreeSet<String> = sources().iter().flat_map(|(_, text)| -> Vec<String> { named(text) }).collect();
    let is_run = |statement: &&String| crossed.iter().any(|point| point.ends_with(&format!(": orders.{statement}")));
    let missed: Vec<_> = statements.iter().filter(|statement| !is_run(statement)).collect();
    assert!(statements.len() > 40 && missed.is_empty(), "no scenario runs {missed:?} of {}", statements.len());
}

/// A use case waits for its store, its acquirer, a pause at a point, and functions that do the same. Whoever waits for something else
/// is to put a point there, and to say so here.
#[test]
fn a_use_case_waits_for_nothing_else() {
    // What serves and starts is no use case.
    let outside = [
        "lib.rs",
        "main.rs",
        "rpc.rs",
        "rpc/many.rs",
        "background.rs",
        "acquirer/client.rs",
        "acquirer/http.rs",
        "acquirer/road.rs",
    ];
    let foreign =
        ["reqwest::", "hyper_util::", "tonic::", "tokio::net", "tokio::sync::mpsc", "tokio::sync::oneshot", "spawn("];
    let mut seen = Vec::new();
    for (path, text) in sources() {
        if outside.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        for word in foreign.iter().chain(&["tokio::time::sleep", "tokio::time::timeout"]) {
            if text.contains(word) {
                seen.push(format!("{} {word}", path.file_name().unwrap().to_string_lossy()));
            }
        }
    }
    seen.sort();
    // The sleep is "wait for answer: pause", and the timeouts are around what has points itself; a status is only made.
    let expected = [
        "pay.rs tokio::time::sleep",
        "pay.rs tokio::time::timeout",
        "shop.rs tokio::time::timeout",
        "status.rs tonic::",
    ];
    assert_eq!(seen, expected);
}
