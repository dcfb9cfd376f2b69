//! The body of a request: read within a limit, decoded, and JSON.

use std::{
    error::Error,
    io::{self, Read},
};

use bytes::{Bytes, BytesMut};
use flate2::bufread::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;

use crate::Problem;

/// The largest body, as sent and as decoded.
pub const BODY_MAX: usize = 256 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;

/// How a body is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    Plain,
    Gzip,
}

/// Reads the body of a JSON request as it was before any encoding, and makes the headers say so. Whether it is JSON is judged by
/// whoever reads it.
pub async fn read<B>(parts: &mut Parts, body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let coding = coding(&parts.headers)?;
    let body = within_limit(body).await?;
    if body.is_empty() {
        // An empty body is {} whatever is said about it.
        return Ok(settle_headers(parts, body));
    }
    if !is_json(&parts.headers) {
        let what = "send the body as application/json, or another JSON type, in UTF-8";
        return Err(Problem::unsupported_media_type(what).reason("content_type"));
    }
    let body = match coding {
        Coding::Plain => body,
        Coding::Gzip => gunzip(&body)?,
    };
    Ok(settle_headers(parts, body))
}

async fn within_limit<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    // A length that is announced over the limit is refused before a byte is read.
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(Problem::payload_too_large());
    }
    let mut body = std::pin::pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unread(error.into().as_ref()))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > BODY_MAX {
            return Err(Problem::payload_too_large());
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

/// What is said of a body that could not be read to its end: it was too slow, or it broke off. A server that ends slow bodies says
/// so with an [`io::Error`] of kind `TimedOut` somewhere among the causes.
pub fn unread(error: &(dyn Error + 'static)) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return Problem::request_timeout();
        }
        cause = error.source();
    }
    Problem::invalid_request("the body could not be read").reason("body_cut_off")
}

fn coding(headers: &HeaderMap) -> Result<Coding, Problem> {
    let refused = || {
        Problem::unsupported_media_type("send the body plain or with Content-Encoding: gzip")
            .reason("content_encoding")
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
    };
    let mut coding = Coding::Plain;
    for line in headers.get_all(header::CONTENT_ENCODING) {
        for name in line.to_str().map_err(|_| refused())?.split(',') {
            match name.trim().to_ascii_lowercase().as_str() {
                "" | "identity" => {}
                // RFC 9110, 8.4.1.3: the same thing under its old name.
                "gzip" | "x-gzip" if coding == Coding::Plain => coding = Coding::Gzip,
                _ => return Err(refused()),
            }
        }
    }
    Ok(coding)
}

fn gunzip(body: &[u8]) -> Result<Bytes, Problem> {
    let mut plain = Vec::new();
    // One byte more than allowed tells a body that is too large from one that just fits, and bounds what a bomb can cost.
    MultiGzDecoder::new(body).take(BODY_MAX as u64 + 1).read_to_end(&mut plain).map_err(|_| {
        Problem::invalid_request("the body is not valid gzip, as its Content-Encoding says").reason("undecodable_body")
    })?;
    if plain.len() > BODY_MAX { Err(Problem::payload_too_large()) } else { Ok(plain.into()) }
}

/// Says JSON, or says nothing: many clients leave the header out.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_TYPE).iter().all(|value| value.to_str().is_ok_and(says_json))
}

fn says_json(value: &str) -> bool {
    let mut parts = value.split(';');
    let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    is_json && parts.all(is_no_other_charset)
}

/// JSON on the wire is UTF-8 (RFC 8259, section 8.1): what calls itself something else would be read as what it is not.
fn is_no_other_charset(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return true };
    let is_utf8 = |charset: &str| ["utf-8", "utf8", "us-ascii"].iter().any(|it| charset.eq_ignore_ascii_case(it));
    !name.trim().eq_ignore_ascii_case("charset") || is_utf8(value.trim().trim_matches('"'))
}

/// The inner service gets the plain body, with headers that fit it.
fn settle_headers(parts: &mut Parts, body: Bytes) -> Bytes {
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::TRANSFER_ENCODING);
    if parts.headers.contains_key(header::CONTENT_LENGTH) || !body.is_empty() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    body
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use futures::FutureExt;
    use http_body_util::Full;

    use super::*;

    fn gzip(plain: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap().into()
    }

    fn read_all(headers: &[(&str, &str)], body: impl Into<Bytes>) -> Result<(Bytes, HeaderMap), (u16, &'static str)> {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let (mut parts, ()) = request.into_parts();
        let body = read(&mut parts, Full::new(body.into())).now_or_never().unwrap();
        body.map(|body| (body, parts.headers)).map_err(|p| (p.status().as_u16(), p.error()))
    }

    #[test]
    fn json_by_any_of_its_names_is_read_and_anything_else_is_415() {
        for name in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;Charset=\"UTF-8\"; profile=x",
            "application/json;",
            "application/merge-patch+json",
        ] {
            assert!(read_all(&[("content-type", name)], "{}").is_ok(), "{name}");
        }
        assert!(read_all(&[], "{}").is_ok());
        for name in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "text/json",
            "",
            "application/json; charset=latin1",
            "application/json; charset=utf-16",
            "application/json; charset=",
            "application/merge-patch+json; charset=\"iso-8859-1\"",
        ] {
            let refused = read_all(&[("content-type", name)], "{}").unwrap_err();
            assert_eq!(refused, (415, "unsupported_media_type"), "{name}");
            assert!(read_all(&[("content-type", name)], "").is_ok(), "{name} without a body");
        }
    }

    #[test]
    fn gzip_is_decoded_and_the_headers_say_so() {
        let zipped = gzip(b"{\"a\":1}");
        for name in ["gzip", "GZIP", "x-gzip", "identity, gzip"] {
            let (body, headers) =
                read_all(&[("content-encoding", name), ("content-length", "27")], zipped.clone()).unwrap();
            assert_eq!(body, "{\"a\":1}", "{name}");
            assert_eq!(headers.get("content-encoding"), None);
            assert_eq!(headers["content-length"], "7");
        }
        let two_members = [gzip(b"{\"a\""), gzip(b":1}")].concat();
        assert_eq!(read_all(&[("content-encoding", "gzip")], two_members).unwrap().0, "{\"a\":1}");
    }

    #[test]
    fn what_cannot_be_decoded_is_400_and_other_codings_are_415() {
        let zipped = gzip(b"{\"a\":1}");
        let gzip_header = [("content-encoding", "gzip")];
        let truncated = zipped.slice(..zipped.len() - 3);
        let with_garbage = [&zipped[..], b"garbage"].concat();
        for body in [Bytes::from_static(b"{}"), truncated, with_garbage.into()] {
            assert_eq!(read_all(&gzip_header, body).unwrap_err(), (400, "invalid_request"));
        }
        for name in ["br", "deflate", "gzip, gzip", "zstd"] {
            let refused = read_all(&[("content-encoding", name)], zipped.clone()).unwrap_err();
            assert_eq!(refused, (415, "unsupported_media_type"), "{name}");
        }
    }

    #[test]
    fn a_body_that_is_too_slow_may_be_sent_again_and_one_that_broke_off_is_wrong() {
        let ending = |error: io::Error| {
            let frames = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"{"))), Err(error)]);
            let (mut parts, ()) = http::Request::new(()).into_parts();
            let read = read(&mut parts, http_body_util::StreamBody::new(frames)).now_or_never().unwrap();
            read.map_err(|problem| (problem.status().as_u16(), problem.error())).unwrap_err()
        };
        assert_eq!(ending(io::ErrorKind::TimedOut.into()), (408, "request_timeout"));
        assert_eq!(ending(io::ErrorKind::ConnectionReset.into()), (400, "invalid_request"));
    }

    #[test]
    fn the_limit_holds_as_sent_and_as_decoded() {
        let body = |len: usize| format!("\"{}\"", "a".repeat(len - 2));
        assert!(read_all(&[], body(BODY_MAX)).is_ok());
        assert_eq!(read_all(&[], body(BODY_MAX + 1)).unwrap_err(), (413, "payload_too_large"));
        let gzip_header = [("content-encoding", "gzip")];
        assert!(read_all(&gzip_header, gzip(body(BODY_MAX).as_bytes())).is_ok());
        let refused = read_all(&gzip_header, gzip(body(BODY_MAX + 1).as_bytes())).unwrap_err();
        assert_eq!(refused, (413, "payload_too_large"));
        let bomb = gzip(&vec![b' '; 64 * 1024 * 1024]);
        assert!(bomb.len() < BODY_MAX);
        assert_eq!(read_all(&gzip_header, bomb).unwrap_err(), (413, "payload_too_large"));
    }
}
