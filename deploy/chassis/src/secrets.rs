//! Files of secrets: read within bounds, and refused without a word of what stands in them.

pub use credentials::{entries, read};
