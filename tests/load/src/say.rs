//! What the benchmark says to whoever started it: results on stdout, progress on stderr.

/// One line of results.
#[allow(clippy::print_stdout, reason = "results are what this program is for")]
pub fn result(line: &str) {
    println!("{line}");
}

/// One line about what is going on.
#[allow(clippy::print_stderr, reason = "somebody waits for minutes and wants to see why")]
pub fn progress(line: &str) {
    eprintln!("{line}");
}
