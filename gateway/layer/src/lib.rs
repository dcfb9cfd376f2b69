//! A tower layer that makes any HTTP service safe to retry.

mod backend;
mod body;
mod capture;
mod execute;
mod headers;
mod holder;
mod layer;
mod operation;
mod policy;
pub mod ports;
mod prefer;
mod problem;
mod recovery;
mod service;
mod settings;
mod tally;

pub use body::{BODY_MAX, read as read_body};
pub use headers::{IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_EXPIRES, IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED};
pub use layer::{Idempotency, IdempotencyLayer};
pub use policy::RoutePolicy;
pub use problem::{PROBLEM_JSON, Problem};
pub use service::{IdempotencyService, ResponseBody};
pub use settings::{Hooks, Settings};
