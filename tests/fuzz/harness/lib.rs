//! The fuzz ring: what a stranger can send, judged by independent readings.
//!
//! Each target makes inputs at random, hands them to the product, and holds the product's verdict against one that was made
//! another way. It runs in the normal suite with a bounded number of cases; a long campaign is the same tests with more,
//! `just fuzz 100000`, which is
//!
//! ```text
//! eval "$(tests/postgres start)" && PROPTEST_CASES=100000 cargo test -p fuzz --tests
//! ```
//!
//! What fails is printed in its smallest form, and its seed is written to `seeds/`, from where every later run tries it first.
//! `PROPTEST_RNG_SEED` makes a run repeatable. Inputs that once were a fault, or nearly, are rows in the targets themselves.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod campaign;
mod edge;
mod grpc;
mod http1;
mod messages;
mod oracle;
mod panics;
mod text;

pub use campaign::{hold, hold_async, runtime};
pub use edge::Edge;
pub use grpc::{Code, GrpcWire, Reply, frame};
pub use http1::{Answer, Http1Wire};
pub use messages::{Method, Mood, Schema, Vocabulary, mangle};
pub use oracle::{JsonVerdict, Python};
pub use panics::Panics;
pub use text::Text;
