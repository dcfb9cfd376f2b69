//! The protocol, model-checked.
fn main() {}
