//! The page of faults that others have met names a test for each; the tests must be there.

use std::{fs, path::Path};

const PAGE: &str = include_str!("../../docs/faults-seen-elsewhere.md");

/// Rows of the tables, as cells.
fn rows() -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what went wrong"));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// `path.rs::name`, each in backticks.
fn tests(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect()
}

/// A function, or a row of a table that a macro makes one of.
fn defines(source: &str, name: &str) -> bool {
    let (function, row) = (format!("fn {name}("), format!("{name}: "));
    source.lines().any(|line| line.contains(&function) || line.trim_start().starts_with(&row))
}

#[test]
fn every_test_that_the_page_of_faults_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in the workspace");
    let mut named = 0;
    for row in rows() {
        for (file, name) in row.iter().flat_map(|cell| tests(cell)) {
            let source = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert!(defines(&source, name), "{file} has no test {name}");
            named += 1;
        }
    }
    assert!(named > 100, "only {named} tests are named: the page is read wrongly");
}

#[test]
fn every_fault_of_the_page_has_a_test_or_a_reason() {
    let rows = rows();
    assert!(rows.len() > 80, "only {} rows: the page is read wrongly", rows.len());
    for row in rows {
        let [fault, answer, proof] = row.as_slice() else { panic!("three cells: {row:?}") };
        assert!(!fault.is_empty() && !answer.is_empty(), "{row:?}");
        assert!(!tests(proof).is_empty() || proof.starts_with("does not apply: "), "{fault}: no test and no reason");
    }
}
