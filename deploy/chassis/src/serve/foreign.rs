//! What reaches a gRPC port and does not even call itself gRPC.

use axum::{extract::Request, middleware::Next, response::Response as AxumResponse};
use http::{StatusCode, header::CONTENT_TYPE};

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
}
