//! Why a call has no answer.

use idem_proto::idem::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A call without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No answer within the deadline. Whether the call arrived is unknown; repeating it is safe.
    #[error("the idempotency service cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The service understood and refused: repeating the call as it is changes nothing.
    #[error("the idempotency service refused the call: {message}")]
    Refused {
        /// The gRPC code.
        code: Code,
        /// Why, if the service said so.
        reason: ErrorReason,
        /// One sentence.
        message: String,
        /// All of it.
        #[source]
        source: Box<Status>,
    },
    /// An answer that this version of the client cannot read.
    #[error("the idempotency service gave an answer that cannot be read: {0}")]
    Malformed(&'static str),
}

/// No answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within the deadline")]
pub(crate) struct TimedOut;

impl ClientError {
    pub(crate) fn from_status(status: Status) -> Self {
        if is_transient(&status) { Self::Unreachable(status.into()) } else { Self::refused(status) }
    }

    pub(crate) fn timed_out() -> Self {
        Self::Unreachable(TimedOut.into())
    }

    fn refused(status: Status) -> Self {
        let reason = status
            .get_details_error_info()
            .and_then(|info| {
                ErrorReason::from_str_name(&format!("ERROR_REASON_{}", info.reason))
                    .or_else(|| ErrorReason::from_str_name(&info.reason))
            })
            .unwrap_or(ErrorReason::Unspecified);
        let message = status.message().to_owned();
        Self::Refused { code: status.code(), reason, message, source: status.into() }
    }
}

/// The call may not have arrived, or the service could not act on it now.
pub(crate) fn is_transient(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => true,
        // A status that was made on this side, from a connection that broke or a try that took too long, has a source; one that
        // the service sent has none.
        _ => std::error::Error::source(status).is_some(),
    }
}
