//! What an input may cost: memory in proportion to its size and no more, time like any other input of that size.
//!
//! The allocator of this binary counts. What is measured is the whole process, so one test runs at a time.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod bodies;
mod frames;
mod json;
mod measure;
