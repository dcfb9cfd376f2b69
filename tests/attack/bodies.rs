//! Bodies that are too large, too deep, double-tongued, or larger inside than outside.

use std::io::Write as _;

use e2e::{Store, World};
use flate2::{Compression, write::GzEncoder};
use http::Method;

use crate::bystander::Bystander;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bodies_are_refused_and_reserve_nothing() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let order = World::order_body(1).to_string();
    let bomb = gzip(&vec![b' '; 200 * 1024 * 1024]);
    assert!(bomb.len() < 256 * 1024, "it passes for small");
    let twice = gzip(&gzip(order.as_bytes()));
    let table: Vec<(&str, Vec<u8>, &str, u16, &str)> = vec![
        ("large", vec![b' '; 257 * 1024], "", 413, "payload_too_large"),
        ("bomb", bomb, "gzip", 413, "payload_too_large"),
        ("bomb in a bomb", twice.clone(), "gzip, gzip", 415, "unsupported_media_type"),
        ("gzip in gzip", twice, "gzip", 400, "invalid_request"),
        ("no gzip", order.clone().into(), "gzip", 400, "invalid_request"),
        ("brotli", order.clone().into(), "br", 415, "unsupported_media_type"),
        ("deep", "[".repeat(100_000).into(), "", 400, "invalid_request"),
        ("deep and whole", format!("{}{}", "[".repeat(65), "]".repeat(65)).into(), "", 400, "invalid_request"),
        ("deep objects", r#"{"a":"#.repeat(40_000).into(), "", 400, "invalid_request"),
        (
            "two venues",
            order.replacen("\"venueId\":", "\"venueId\":\"other\",\"venueId\":", 1).into(),
            "",
            400,
            "invalid_request",
        ),
        ("escaped twin", order.replacen('{', "{\"venue\\u0049d\":\"other\",", 1).into(), "", 400, "invalid_request"),
        (
            "long number",
            order.replacen(":1", &format!(":{}", "9".repeat(100_000)), 1).into(),
            "",
            400,
            "invalid_request",
        ),
        ("huge exponent", order.replacen(":1", ":1e999999999", 1).into(), "", 400, "invalid_request"),
    ];
    for (name, body, encoding, status, error) in table {
        let ask = world.ask(Method::POST, "/v1/orders").key(name).bytes("application/json", body);
        let ask = if encoding.is_empty() { ask } else { ask.header("content-encoding", encoding) };
        let refused = ask.send().await;
        assert_eq!(refused.status, status, "{name}: {:?}", String::from_utf8_lossy(&refused.body));
        refused.expect_problem(status, error, None, false);
        world.key_state(&name.replace(' ', "%20")).await.expect(404);
    }
    bystander.was_served().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_bombs_at_once_disturb_nobody() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let bomb = bytes::Bytes::from(gzip(&vec![b' '; 200 * 1024 * 1024]));
    let throw = |n: usize| {
        let ask = world.ask(Method::POST, "/v1/orders").key(&format!("bomb-{n}")).header("content-encoding", "gzip");
        ask.bytes("application/json", bomb.clone()).send()
    };
    for refused in futures::future::join_all((0..100).map(throw)).await {
        refused.expect_problem(413, "payload_too_large", None, false);
    }
    bystander.was_served().await;
    world.stop().await;
}
