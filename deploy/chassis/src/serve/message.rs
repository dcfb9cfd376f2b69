//! Messages that are no use: too large, or not what they claim to be.

use crate::service_auth::refuse_with;
use axum::http::{HeaderMap, Response};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation};

/// The largest message that our services read, of each other too: 4 MiB, as gRPC has it when nobody says otherwise. A stored answer
/// is at most one, and a list of records carries no bodies.
pub const MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// The reason in `ErrorInfo`, as for any other field that is out of bounds.
const REASON: &str = "INVALID_FIELD";

/// Gives tonic's own refusals of a message the shape of ours: one that is too large or cannot be decoded is out of bounds, and
/// INVALID_ARGUMENT says what to do about it.
///
/// A field of type string that is not UTF-8 never reaches the request types, so this is where it is met. `error_domain` is the
/// domain of the `ErrorInfo`.
pub(super) fn reword_undecodable<B: Default>(error_domain: &str, response: Response<B>) -> Response<B> {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    let sentence = match status.code() {
        // Nothing of ours answers OUT_OF_RANGE otherwise.
        Code::OutOfRange => format!("the message is too large: send at most {MESSAGE_MAX} bytes; nothing was done"),
        Code::Internal if status.message().starts_with("failed to decode Protobuf message") => {
            status.message().to_owned()
        }
        _ => return response,
    };
    let details = ErrorDetails::with_bad_request(vec![FieldViolation::new("", sentence.as_str())]);
    let mut reworded = refuse_with(Code::InvalidArgument, &sentence, error_domain, REASON, details);
    keep_others(response.headers(), reworded.headers_mut());
    reworded
}

fn keep_others(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from.iter().filter(|(name, _)| !name.as_str().starts_with("grpc-")) {
        to.entry(name).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn undecodable_messages_are_invalid_arguments_and_other_answers_pass() {
        let table = [
            (Status::out_of_range("too large"), Code::InvalidArgument),
            (Status::internal("failed to decode Protobuf message: …"), Code::InvalidArgument),
            (Status::internal("the store …"), Code::Internal),
            (Status::unavailable(""), Code::Unavailable),
        ];
        for (status, code) in table {
            let reworded = reword_undecodable("test", status.into_http::<Body>());
            assert_eq!(Status::from_header_map(reworded.headers()).unwrap().code(), code);
            assert_eq!(reworded.headers()["content-type"], "application/grpc");
        }
        let fine = reword_undecodable("test", Response::new(Body::from("fine")));
        assert!(!fine.headers().contains_key("grpc-status"));
    }
}
