//! What reaches a gRPC port and is no call of ours: another protocol, or a message that is no message.

use axum::{extract::Request, middleware::Next, response::Response as AxumResponse};
use http::{HeaderMap, Response, StatusCode, header::CONTENT_TYPE};
use std::collections::HashMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// The reason for everything that is out of bounds, as the services name it too.
const INVALID_FIELD: &str = "INVALID_FIELD";

/// Answers 415 to what does not call itself gRPC, as the gRPC specification asks.
///
/// It is more than a courtesy: a page anywhere can make a browser on this machine POST any bytes to a loopback port as
/// `text/plain`, and to no port as `application/grpc` without asking the server first.
pub(super) async fn refuse_other_protocols(request: Request, next: Next) -> AxumResponse {
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    let is_grpc = content_type
        .and_then(|value| value.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
    if is_grpc {
        return next.run(request).await;
    }
    let mut refused = AxumResponse::default();
    *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    refused
}

/// Gives tonic's own refusals of a message the shape of ours: one that is too large or cannot be decoded is out of bounds.
///
/// A field of type string that is not UTF-8 never reaches the request types, so this is where it is met.
pub(super) fn reword_undecodable<B: Default>(response: Response<B>, error_domain: &'static str) -> Response<B> {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    let undecodable = match status.code() {
        // Nothing of ours answers OUT_OF_RANGE otherwise.
        Code::OutOfRange => true,
        Code::Internal => status.message().starts_with("failed to decode Protobuf message"),
        _ => false,
    };
    if !undecodable {
        return response;
    }
    let mut details = ErrorDetails::with_bad_request(vec![FieldViolation::new("", status.message())]);
    details.set_error_info(INVALID_FIELD, error_domain, HashMap::new());
    let mut reworded = Status::with_error_details(Code::InvalidArgument, status.message(), details).into_http();
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
    use axum::{Router, body::Body, middleware::from_fn, routing::post};
    use tower::ServiceExt;

    #[tokio::test]
    async fn only_what_calls_itself_grpc_comes_in() {
        let router = Router::new().route("/", post(|| async { "in" })).layer(from_fn(refuse_other_protocols));
        let table = [
            (Some("application/grpc"), 200),
            (Some("application/grpc+proto"), 200),
            (Some("application/grpc;x=1"), 200),
            (Some("application/grpcish"), 415),
            (Some("text/plain"), 415),
            (Some("text/plain;application/grpc"), 415),
            (Some("application/json"), 415),
            (None, 415),
        ];
        for (content_type, expected) in table {
            let request = Request::post("/");
            let request = content_type.into_iter().fold(request, |request, it| request.header(CONTENT_TYPE, it));
            let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), expected, "{content_type:?}");
        }
    }

    #[test]
    fn undecodable_messages_are_invalid_arguments_and_other_answers_pass() {
        let table = [
            (Status::out_of_range("too large"), Code::InvalidArgument),
            (Status::internal("failed to decode Protobuf message: …"), Code::InvalidArgument),
            (Status::internal("the store …"), Code::Internal),
            (Status::unavailable(""), Code::Unavailable),
        ];
        for (status, code) in table {
            let message = status.message().to_owned();
            let reworded = reword_undecodable(status.into_http::<Body>(), "test");
            let read = Status::from_header_map(reworded.headers()).unwrap();
            assert_eq!((read.code(), read.message()), (code, message.as_str()));
            assert_eq!(reworded.headers()["content-type"], "application/grpc");
            if code == Code::InvalidArgument {
                let details = read.get_error_details();
                let info = details.error_info().unwrap();
                assert_eq!((info.reason.as_str(), info.domain.as_str()), (INVALID_FIELD, "test"));
                assert_eq!(details.bad_request().unwrap().field_violations[0].description, message);
            }
        }
        let fine = reword_undecodable(Response::new(Body::from("fine")), "test");
        assert!(!fine.headers().contains_key("grpc-status"));
    }
}
