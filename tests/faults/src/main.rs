//! A campaign of faults against the real processes.
fn main() {}
