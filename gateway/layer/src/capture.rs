//! What is stored of an answer, and the answer that is made of it again.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use idem_core::{BODY_MAX, Response as Stored};

use crate::{Problem, headers, ports::Replay, problem::PROBLEM_JSON};

/// What a replay carries. Never `set-cookie`, which belongs to one session, nor hop-by-hop headers, which belong to one
/// connection.
const STORED_HEADERS: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::LINK,
    header::CONTENT_LANGUAGE,
    HeaderName::from_static("content-disposition"),
];

const RESOURCE_ID_MAX: usize = 200;

/// The answer as it is stored. One that is too large is stored as its tombstone: the status and `Location` of the answer, and a
/// problem document in place of the body, made by `render`.
pub(crate) fn stored(response: &Response<Bytes>, resource_id: &str, render: impl FnOnce(&Problem) -> Bytes) -> Stored {
    let status = response.status();
    let resource_id = storable_id(resource_id);
    let headers = storable_headers(response.headers());
    if response.body().len() <= BODY_MAX
        && let Ok(stored) = Stored::new(status.as_u16().into(), headers, response.body().clone(), resource_id.clone())
    {
        return stored;
    }
    tombstone(response, resource_id, render(&too_large(status)))
}

/// The stored answer, as it is given again.
pub(crate) fn replayed(replay: &Replay) -> Response<Bytes> {
    let stored = &replay.response;
    let mut response = Response::new(stored.body().clone());
    // The bounds of a stored answer are those of an HTTP status.
    *response.status_mut() = StatusCode::from_u16(stored.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in stored.headers() {
        // Judged again: the answer may have been stored by another service, or by hand.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes()))
            && STORED_HEADERS.contains(&name)
        {
            response.headers_mut().append(name, value);
        }
    }
    headers::mark_replayed(response.headers_mut());
    headers::mark_expires(response.headers_mut(), replay.expires_at);
    response
}

fn storable_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut stored = Vec::new();
    for name in &STORED_HEADERS {
        for value in headers.get_all(name) {
            // A value that is not text cannot be stored; the answer itself can.
            if let Ok(text) = std::str::from_utf8(value.as_bytes())
                && !text.chars().any(char::is_control)
            {
                stored.push((name.as_str().to_owned(), text.to_owned()));
            }
        }
    }
    stored
}

fn storable_id(id: &str) -> String {
    let fits = id.len() <= RESOURCE_ID_MAX && !id.chars().any(char::is_control);
    if fits { id.to_owned() } else { String::new() }
}

fn too_large(status: StatusCode) -> Problem {
    Problem::new(
        status,
        "response_too_large_to_replay",
        "The answer is too large to be given again",
        "the operation was carried out and answered with this status; read what it made at Location, or by its id",
    )
}

fn tombstone(response: &Response<Bytes>, resource_id: String, body: Bytes) -> Stored {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let mut headers = vec![(header::CONTENT_TYPE.to_string(), text(&PROBLEM_JSON))];
    // Longer than any URL that clients follow, it would not fit beside the rest.
    if let Some(location) = response.headers().get(header::LOCATION).filter(|location| location.len() <= 8192) {
        headers.push((header::LOCATION.to_string(), text(location)));
    }
    Stored::new(response.status().as_u16().into(), headers, body, resource_id)
        .expect("a short document, two headers and an HTTP status are within bounds")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn response(headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Bytes> {
        let mut response = Response::new(body.into());
        *response.status_mut() = StatusCode::CREATED;
        for (name, value) in headers {
            response.headers_mut().append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        response
    }

    fn render(problem: &Problem) -> Bytes {
        problem.document("", "t")
    }

    fn replay(stored: Stored) -> Response<Bytes> {
        let expires_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_553_445);
        replayed(&Replay {
            response: stored,
            expires_at,
            expires_in: Default::default(),
            trace_context: Default::default(),
        })
    }

    #[test]
    fn a_replay_has_the_bytes_and_the_allowed_headers_and_no_others() {
        let original = response(
            &[
                ("content-type", "application/json"),
                ("location", "/v1/orders/1"),
                ("link", "<a>; rel=x"),
                ("link", "<b>; rel=y"),
                ("content-language", "en"),
                ("content-disposition", "inline; filename=\"é\""),
                ("set-cookie", "a=b"),
                ("connection", "keep-alive"),
                ("transfer-encoding", "chunked"),
                ("www-authenticate", "Basic"),
                ("content-length", "3"),
                ("x-other", "1"),
            ],
            "{\"b\":1,\"a\":2.50}",
        );
        let replay = replay(stored(&original, "id-1", render));
        assert_eq!(replay.status(), 201);
        assert_eq!(replay.body(), original.body());
        let names: Vec<&str> = replay.headers().keys().map(HeaderName::as_str).collect();
        let expected = [
            "content-type",
            "location",
            "link",
            "content-language",
            "content-disposition",
            "idempotent-replayed",
            "idempotency-key-expires",
        ];
        assert_eq!(names, expected);
        assert_eq!(replay.headers().get_all("link").iter().count(), 2);
        assert_eq!(replay.headers()["content-disposition"], original.headers()["content-disposition"]);
        assert_eq!(replay.headers()["idempotency-key-expires"], "Wed, 02 Jan 2030 03:04:05 GMT");
    }

    #[test]
    fn headers_stored_by_somebody_else_are_judged_again() {
        let headers = vec![
            ("set-cookie".to_owned(), "a=b".to_owned()),
            ("content-type".to_owned(), "text/plain".to_owned()),
            ("not a name".to_owned(), "x".to_owned()),
        ];
        let replay = replay(Stored::new(200, headers, Bytes::new(), String::new()).unwrap());
        assert_eq!(replay.headers().get("set-cookie"), None);
        assert_eq!(replay.headers()["content-type"], "text/plain");
    }

    #[test]
    fn an_answer_over_the_limit_is_stored_as_its_tombstone() {
        let just_fits = response(&[], vec![b'x'; BODY_MAX]);
        assert_eq!(stored(&just_fits, "", render).body().len(), BODY_MAX);

        let large = response(
            &[("content-type", "text/csv"), ("location", "/v1/orders/1"), ("content-language", "en")],
            vec![b'x'; BODY_MAX + 1],
        );
        let stored = stored(&large, "id-1", render);
        assert_eq!((stored.status(), stored.resource_id()), (201, "id-1"));
        let replay = replay(stored);
        assert_eq!(replay.headers()["content-type"], "application/problem+json");
        assert_eq!(replay.headers()["location"], "/v1/orders/1");
        assert_eq!(replay.headers().get("content-language"), None);
        let body: serde_json::Value = serde_json::from_slice(replay.body()).unwrap();
        assert_eq!((&body["error"], &body["status"]), (&"response_too_large_to_replay".into(), &201.into()));
    }

    #[test]
    fn what_cannot_be_stored_never_makes_an_answer_unstorable() {
        let mut odd = response(&[], "{}");
        odd.headers_mut().insert("content-language", HeaderValue::from_bytes(b"\xff").unwrap());
        odd.headers_mut().insert("link", HeaderValue::from_bytes(b"a\tb").unwrap());
        let kept = stored(&odd, &"x".repeat(201), render);
        assert_eq!((kept.headers(), kept.resource_id(), &kept.body()[..]), (&[][..], "", &b"{}"[..]));

        let long = response(&[("location", &"x".repeat(20_000))], "{}");
        assert_eq!(stored(&long, "", render).headers().len(), 1);
    }
}
