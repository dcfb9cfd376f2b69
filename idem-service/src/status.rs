//! Errors → `Status`, the only place: the caller gets a stable reason and a next step, the log gets the cause.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use idem_proto::idem::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::engine::EngineError;
use crate::store::StoreError;

/// The domain of every `ErrorInfo`.
pub(crate) const ERROR_DOMAIN: &str = "idem";
/// When to come back after the store was away; soon, since a failover takes seconds and nothing is executed meanwhile.
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(1);
/// When to come back after a key changed under every round: whoever changed it is done by then.
const RETRY_CONTENDED: Duration = Duration::from_millis(100);

/// Why a call is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Fields are out of bounds.
    #[error("the request is out of bounds")]
    Invalid(Vec<FieldViolation>),
    /// The caller's grant does not cover the scope.
    #[error("the grant of this caller does not cover the scope")]
    ScopeNotGranted,
    /// The answers of one call are more than a client reads.
    #[error("the stored answers are too large for one message: ask for fewer keys at a time")]
    TooLarge,
    /// There is no record, or its retention is over.
    #[error("there is no reservation under this key")]
    NoRecord,
    /// A stored answer never changes.
    #[error("the key is completed, and a stored answer never changes")]
    AlreadyCompleted,
    /// Somebody was faster.
    #[error("the fencing token is {current} now: look again before settling by hand")]
    TokenChanged {
        /// The token that the key is at.
        current: i64,
    },
    /// The engine did not carry it out.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(violations) => invalid(violations),
            Refusal::Engine(error) => engine(error),
            Refusal::ScopeNotGranted => refuse(Code::PermissionDenied, ErrorReason::ScopeNotGranted, &refusal),
            Refusal::TooLarge => refuse(Code::ResourceExhausted, ErrorReason::AnswerTooLarge, &refusal),
            Refusal::NoRecord => refuse(Code::NotFound, ErrorReason::NoRecord, &refusal),
            Refusal::AlreadyCompleted => refuse(Code::FailedPrecondition, ErrorReason::AlreadyCompleted, &refusal),
            Refusal::TokenChanged { .. } => refuse(Code::Aborted, ErrorReason::TokenChanged, &refusal),
        }
    }
}

fn invalid(violations: Vec<FieldViolation>) -> Status {
    let sentence =
        violations.iter().map(|it| format!("{}: {}", it.field, it.description)).collect::<Vec<_>>().join("; ");
    let mut details = ErrorDetails::with_bad_request(violations);
    details.set_error_info(name(ErrorReason::InvalidField), ERROR_DOMAIN, HashMap::new());
    Status::with_error_details(Code::InvalidArgument, sentence, details)
}

fn engine(error: EngineError) -> Status {
    match &error {
        EngineError::DeadlineOver => refuse(Code::DeadlineExceeded, ErrorReason::Deadline, &error),
        EngineError::TimedOut | EngineError::Store(StoreError::Unavailable(_)) => {
            tracing::warn!(error = &error as &dyn Error, "the store is not available");
            unavailable("the idempotency store is not reachable: repeat the call unchanged", RETRY_UNAVAILABLE)
        }
        EngineError::Contended => {
            tracing::warn!(error = &error as &dyn Error, "gave up on a contended key");
            unavailable("the key is changing too fast: repeat the call unchanged", RETRY_CONTENDED)
        }
        EngineError::Store(StoreError::Broken(_)) => {
            tracing::error!(error = &error as &dyn Error, "the store answered nonsense");
            Status::internal("the idempotency store answered something unexpected; the log of this service says what")
        }
    }
}

fn unavailable(sentence: &str, retry_after: Duration) -> Status {
    let mut details = ErrorDetails::with_retry_info(Some(retry_after));
    details.set_error_info(name(ErrorReason::StoreUnavailable), ERROR_DOMAIN, HashMap::new());
    Status::with_error_details(Code::Unavailable, sentence, details)
}

fn refuse(code: Code, reason: ErrorReason, why: &dyn Error) -> Status {
    let details = ErrorDetails::with_error_info(name(reason), ERROR_DOMAIN, HashMap::new());
    Status::with_error_details(code, why.to_string(), details)
}

/// The reason as it stands in `ErrorInfo`: without the prefix that proto style asks of an enum's values.
fn name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(status: &Status) -> String {
        status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
    }

    #[test]
    fn nothing_of_the_store_reaches_the_caller() {
        let sql = || "relation \"idem_keys\" does not exist".into();
        for error in [StoreError::Unavailable(sql()), StoreError::Broken(sql())] {
            let status = Status::from(Refusal::from(EngineError::from(error)));
            assert!(!format!("{status:?}").contains("idem_keys"), "{status:?}");
        }
    }

    #[test]
    fn an_unreachable_store_says_when_to_come_back() {
        let status = Status::from(Refusal::from(EngineError::TimedOut));
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
        let delay = status.get_error_details().retry_info().and_then(|retry| retry.retry_delay);
        assert_eq!(delay, Some(RETRY_UNAVAILABLE));
    }
}
