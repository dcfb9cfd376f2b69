//! A campaign of faults against the real processes.

#[allow(dead_code, reason = "both halves of the campaign are about to use it")]
mod edge;

fn main() {}
