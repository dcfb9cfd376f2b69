//! One module a target.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod files;
mod gzip;
mod headers;
mod json;
mod keys;
mod layer;
mod lines;
mod paths;
mod rpcs;
mod webhooks;
