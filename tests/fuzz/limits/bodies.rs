//! Encoded bodies and what is announced of bodies: a bomb costs no more than the limit.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use fuzz::{Edge, Http1Wire, runtime};
use http::{HeaderValue, Request};
use http_body_util::Full;
use idem_layer::{BODY_MAX, read_body};

use crate::measure::{alone, peak};

/// A body as it came, a body as it is, and room for a vector to grow in.
const PEAK_MAX: usize = 6 * BODY_MAX;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn status(body: &[u8]) -> u16 {
    let mut request = Request::new(());
    request.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    let (mut parts, ()) = request.into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = Full::new(bytes::Bytes::copy_from_slice(body));
    runtime.block_on(read_body(&mut parts, body)).map_or_else(|problem| problem.status().as_u16(), |_| 200)
}

#[test]
fn a_bomb_costs_no_more_than_the_limit_of_a_body() {
    let _alone = alone();
    let zeros = gzip(&vec![0; 48 * 1024 * 1024]);
    let small = gzip(b"");
    let member = gzip(&[b' '; 1000]);
    let long_name = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0][..], &vec![b'n'; BODY_MAX - 11]].concat();
    let long_extra = [&[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..], &vec![b'e'; BODY_MAX - 12]].concat();
    let rows: [(&str, Vec<u8>, u16); 8] = [
        ("48 MiB of nothing", zeros.clone(), 413),
        ("a bomb in a bomb", gzip(&zeros), 200),
        ("a bomb that is cut off", zeros[..zeros.len() / 2].to_vec(), 413),
        ("members without end", small.repeat(BODY_MAX / small.len()), 200),
        ("members that add up", member.repeat(BODY_MAX / member.len()), 413),
        ("a name without end", long_name, 400),
        ("an extra field without end", long_extra, 400),
        ("noise", vec![0x1f; BODY_MAX], 400),
    ];
    for (name, body, expected) in rows {
        assert!(body.len() <= BODY_MAX, "{name}: {}", body.len());
        let (answered, peak) = peak(|| status(&body));
        assert_eq!(answered, expected, "{name}");
        assert!(peak <= PEAK_MAX, "{name}: {peak} bytes");
    }
}

#[test]
fn what_is_announced_is_not_made_room_for() {
    let _alone = alone();
    let runtime = runtime();
    let edge = runtime.block_on(Edge::start());
    let head = |more: &str| {
        format!(
            "POST /v1/orders HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk_a\r\nidempotency-key: k\r\n\
             content-type: application/json\r\n{more}\r\n"
        )
    };
    let requests = [
        ("2 GiB announced", head("content-length: 2147483648\r\n"), 413),
        ("more than a number holds", head("content-length: 99999999999999999999\r\n"), 400),
        ("a chunk of 4 GiB", head("transfer-encoding: chunked\r\n") + "ffffffff\r\n" + &"x".repeat(BODY_MAX + 1), 413),
        ("a chunk that overflows", head("transfer-encoding: chunked\r\n") + "ffffffffffffffff0\r\n", 400),
        ("a thousand headers", head(&"x: y\r\n".repeat(1_000)), 431),
        ("a header of a megabyte", head(&format!("x: {}\r\n", "y".repeat(1 << 20))), 431),
        ("a path of a megabyte", format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "p".repeat(1 << 20)), 431),
    ];
    // The first request of a process sets up what all the others use.
    runtime.block_on(async { Http1Wire::to(edge.api).raw(head("content-length: 0\r\n").as_bytes()).await });
    for (name, request, expected) in requests {
        let (answer, peak) = peak(|| runtime.block_on(async { Http1Wire::to(edge.api).raw(request.as_bytes()).await }));
        assert_eq!(answer.status, expected, "{name}: {}", answer.text());
        assert!(peak <= 4 << 20, "{name}: {peak} bytes");
    }
    assert_eq!(edge.calls(), 0);
}
