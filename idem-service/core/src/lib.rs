//! The pure core of Idem: what every command on an idempotency key decides.
//!
//! No I/O, no clock, no runtime. A store judges time and carries the verdict out; [`decide`] is the only place where a key's
//! life is decided, so property tests and the model check the product itself.

pub mod decide;
mod durations;
mod fingerprint;
mod ids;
pub mod json;
mod key;
mod record;
mod response;
#[cfg(feature = "sabotage")]
pub mod sabotage;

pub use decide::{Answer, Command, Grant, Put, StaleReason, Until, Verdict, decide};
pub use durations::{DurationError, LEASE_DEFAULT, LeaseDuration, RETENTION_DEFAULT, RetentionPeriod, WAIT_MAX};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use ids::{AttemptId, FencingToken, OperationId};
pub use key::{IdempotencyKey, KeyError, Scope, ScopeError, key_hash};
pub use record::{Deadline, GrantedBy, Record, State, StateName, TraceContext, TraceContextError};
pub use response::{BODY_MAX, Response, ResponseError, is_final};
