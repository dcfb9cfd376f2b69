//! Stored answers, byte for byte.

use bytes::Bytes;
use idem_core::{BODY_MAX, Response, State};
use idem_service::store::Snapshot;

use super::bench::*;

fn stored(snapshot: &Snapshot) -> &Response {
    match &snapshot.record.as_ref().unwrap().state {
        State::Completed(response) => response,
        other => panic!("{other:?}"),
    }
}

async fn complete(bench: &Bench, name: &str, response: &Response) -> Response {
    let key = key(name);
    bench.reserve(&key, 1).await;
    let completed = bench.step(&key, |r| completing(r, response.clone())).await;
    assert_eq!(stored(&completed), response);
    // A loser hears it too.
    let truth = bench.lose(&key, idem_service::store::Version::Absent, first(2)).await;
    assert_eq!(stored(&truth), response);
    stored(&bench.load(&key).await).clone()
}

pub async fn any_bytes_come_back_as_they_were(bench: &Bench) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 6] = [b"", b"\0", b"{\"b\":1,\"a\":2.50}", b"\xff\xfe not UTF-8 \xc3", b"\\x41", &every_byte];
    for (n, body) in bodies.into_iter().enumerate() {
        let response = answer(Bytes::copy_from_slice(body));
        assert_eq!(complete(bench, &n.to_string(), &response).await, response);
    }
}

pub async fn a_megabyte_comes_back_as_it_was(bench: &Bench) {
    let mut seed = 0x9e37_79b9_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed.to_le_bytes()[0]
    })
    .take(BODY_MAX)
    .collect();
    let response = answer(noise);
    assert_eq!(complete(bench, "k", &response).await, response);
}

pub async fn headers_keep_their_order_and_repetitions(bench: &Bench) {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = vec![
        pair("link", "</a>; rel=\"next\""),
        pair("content-type", "application/problem+json"),
        pair("link", "</b>"),
        pair("content-language", "é, \\ 日本"),
        pair("x-empty", ""),
    ];
    let response = Response::new(402, headers, "{}".into(), "bestellung-ß".into()).unwrap();
    assert_eq!(complete(bench, "all", &response).await, response);
    let bare = Response::new(599, Vec::new(), Bytes::new(), String::new()).unwrap();
    assert_eq!(complete(bench, "none", &bare).await, bare);
}

pub async fn the_first_answer_stands_until_its_retention_is_over(bench: &Bench) {
    let key = key("k");
    let reserved = bench.reserve(&key, 1).await;
    let other = next(&reserved, |r| completing(r, answer("second")));
    let first = bench.step(&key, |r| completing(r, answer("first"))).await;
    assert_same(&bench.lose(&key, reserved.version, other).await, &first);

    bench.hand.advance(RETENTION);
    let over = bench.load(&key).await;
    assert!(over.record.as_ref().unwrap().is_over());
    assert_eq!(stored(&over).body(), "first");
    let anew = bench.step(&key, |_| reserving(2)).await;
    assert_eq!(anew.record.as_ref().unwrap().state, State::InProgress);
    assert_eq!((anew.times.completed_at, anew.times.expires_at), (None, None));
    assert_same(&bench.load(&key).await, &anew);
}
