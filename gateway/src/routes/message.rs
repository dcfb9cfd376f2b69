//! Requests that a proxy before us may have understood otherwise: refused whatever they ask, and the connection closed, so that nothing
//! behind them is taken for another request.

use crate::error;
use axum::{extract::Request, middleware::Next, response::Response};
use http::{
    HeaderMap, HeaderValue, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    request::Parts,
    uri::Authority,
};
use idem_layer::Problem;

/// Answers 400 to what is no unambiguous HTTP/1 message (RFC 9112, sections 3.2 and 6.1). HTTP/2 has neither trouble.
pub(super) async fn refuse_ambiguous(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let Some(why) = ambiguity(&parts) else { return next.run(Request::from_parts(parts, body)).await };
    // Not even looked at: what is in the body may be another request.
    let mut refused = error::respond(&Problem::invalid_request(why).reason("ambiguous_message"));
    refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    refused
}

fn ambiguity(parts: &Parts) -> Option<&'static str> {
    if parts.version >= Version::HTTP_2 {
        return None;
    }
    if parts.version == Version::HTTP_11 && !has_one_host(&parts.headers) {
        return Some("send exactly one Host header with a host and, if need be, a port");
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next()?;
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Some("the only Transfer-Encoding that is read is `chunked`, once");
    }
    // The HTTP library drops the length beside chunks, and closes the connection after the answer. Should it ever keep it, we would know.
    parts.headers.contains_key(CONTENT_LENGTH).then_some("send Content-Length or Transfer-Encoding, not both")
}

/// An empty one is what a client sends whose target has no host.
fn has_one_host(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(HOST).iter();
    let (Some(host), None) = (lines.next(), lines.next()) else { return false };
    let is_name = |host: &str| Authority::try_from(host).is_ok_and(|it| it.as_str() == host && !host.contains('@'));
    host.to_str().is_ok_and(|host| host.is_empty() || is_name(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn is_refused(version: Version, lines: &[(&str, &str)]) -> bool {
        let request = Request::post("/v1/orders").version(version);
        let request = lines.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        ambiguity(&request.body(()).unwrap().into_parts().0).is_some()
    }

    #[test]
    fn one_host_and_one_length_is_what_a_request_may_have() {
        let (host, chunked) = (("host", "shop.example:8080"), ("transfer-encoding", "chunked"));
        let table: [(&[(&str, &str)], bool); 16] = [
            (&[host], false),
            (&[host, ("content-length", "2")], false),
            (&[host, chunked], false),
            (&[host, ("transfer-encoding", " Chunked ")], false),
            (&[("host", "[::1]:8080")], false),
            (&[("host", "")], false),
            (&[], true),
            (&[host, host], true),
            (&[("host", "a b")], true),
            (&[("host", "a/b")], true),
            (&[("host", "a@b")], true),
            (&[host, chunked, ("content-length", "2")], true),
            (&[host, ("transfer-encoding", "gzip, chunked")], true),
            (&[host, ("transfer-encoding", "gzip"), chunked], true),
            (&[host, chunked, chunked], true),
            (&[host, ("transfer-encoding", "identity")], true),
        ];
        for (lines, expected) in table {
            assert_eq!(is_refused(Version::HTTP_11, lines), expected, "{lines:?}");
            assert!(!is_refused(Version::HTTP_2, lines), "{lines:?}");
        }
        assert!(!is_refused(Version::HTTP_10, &[]));
    }
}
