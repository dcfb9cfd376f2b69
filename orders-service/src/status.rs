//! Errors → gRPC statuses, the only place. The caller gets a stable reason and a next step, the log gets the cause.

use std::{collections::HashMap, error::Error, time::Duration};

use idem_proto::orders::v1::{self as proto, ErrorReason};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{error::OrdersError, request::Violation};

/// The domain of every `ErrorInfo`.
pub const DOMAIN: &str = "orders";

/// What keeps the reasons apart from other enum values.
const PREFIX: &str = "ERROR_REASON_";

/// When to try again while something that we depend on is away.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The status of an error; the cause goes to the log here.
pub fn from_error(error: &OrdersError) -> Status {
    let cause = error as &dyn Error;
    match error {
        OrdersError::Database(database) if database.is_transient() => {
            tracing::error!(error = cause, "the store is not available");
            unavailable(ErrorReason::StoreUnavailable, "the store cannot be reached; ask what happened, then try again")
        }
        OrdersError::AcquirerUnreachable(_) => {
            tracing::warn!(error = cause, "the acquirer is not available");
            unavailable(ErrorReason::AcquirerUnreachable, "the acquirer cannot be asked now; try again")
        }
        OrdersError::StaleToken => {
            metrics::counter!("orders_fenced_total").increment(1);
            refused(
                Code::FailedPrecondition,
                ErrorReason::StaleFencingToken,
                "a higher fencing token was seen for this operation: another holder has taken over",
            )
        }
        OrdersError::OperationReused => refused(
            Code::FailedPrecondition,
            ErrorReason::OperationReused,
            "the operation id was used for another kind of operation, tenant or request",
        ),
        OrdersError::NotFound(what) => {
            refused(Code::NotFound, ErrorReason::NotFound, format!("there is no such {what}"))
        }
        OrdersError::Deadline => {
            refused(Code::DeadlineExceeded, ErrorReason::Deadline, "the deadline was over before the work was done")
        }
        OrdersError::ScopeNotGranted => refused(
            Code::PermissionDenied,
            ErrorReason::ScopeNotGranted,
            "the grant of this caller does not cover this tenant (scope rest/<tenant>)",
        ),
        OrdersError::Database(_)
        | OrdersError::Corrupt(_)
        | OrdersError::Unreadable(_)
        | OrdersError::HoldsOver(_)
        | OrdersError::Lost(_) => {
            tracing::error!(error = cause, "a fault of this service");
            Status::internal("the orders service failed; ask what happened, then try again")
        }
    }
}

/// The status of a field out of bounds.
pub fn from_violation(violation: &Violation) -> Status {
    let mut details = ErrorDetails::with_bad_request_violation(&violation.field, violation.description);
    details.set_error_info(name(ErrorReason::InvalidField), DOMAIN, HashMap::new());
    Status::with_error_details(Code::InvalidArgument, violation.to_string(), details)
}

/// The status of a task that panicked; what it did before is in the rows.
pub fn from_panic() -> Status {
    Status::internal("the orders service failed; ask what happened, then try again")
}

/// What one item of several is told, as it would have been told alone.
pub fn to_failure(status: &Status) -> proto::Failure {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let reason = ErrorReason::from_str_name(&format!("{PREFIX}{reason}")).unwrap_or_default();
    proto::Failure {
        code: status.code().into(),
        message: status.message().to_owned(),
        reason: reason.into(),
        details: status.details().to_vec().into(),
    }
}

fn unavailable(reason: ErrorReason, message: &str) -> Status {
    let mut details = ErrorDetails::with_retry_info(Some(RETRY_DELAY));
    details.set_error_info(name(reason), DOMAIN, HashMap::new());
    Status::with_error_details(Code::Unavailable, message, details)
}

fn refused(code: Code, reason: ErrorReason, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(name(reason), DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

/// As the proto comments and the field spell it: the prefix only keeps enum values apart.
fn name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}
