//! The stored answer, byte for byte.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::Full;
use idem_core::BODY_MAX;
use idem_layer::ports::Label;

use crate::{
    scripted::{Act, labelled},
    world::{World, post},
};

#[tokio::test(start_paused = true)]
async fn a_replay_has_status_bytes_and_allowed_headers_of_the_original() {
    let world = World::new();
    let mut response = labelled(201, "{\"b\":1,\"a\":2.50}", Label::Final);
    for (name, value) in [
        ("link", "<a>; rel=x"),
        ("content-language", "en"),
        ("content-disposition", "inline"),
        ("connection", "keep-alive"),
        ("x-other", "1"),
    ] {
        response.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    world.inner.will(Act::Answer(response));
    let (first, second) = (world.post("k").await, world.post("k").await);
    assert_eq!((second.status, &second.body), (first.status, &first.body));
    for name in ["content-type", "location", "link", "content-language", "content-disposition", "idempotency-key"] {
        assert!(first.header(name).is_some(), "{name}");
        assert_eq!(second.header(name), first.header(name), "{name}");
    }
    assert_eq!(second.header("idempotency-key-expires"), first.header("idempotency-key-expires"));
    for name in ["set-cookie", "connection", "x-other"] {
        assert!(first.header(name).is_some(), "{name}");
        assert_eq!(second.header(name), None, "{name}");
    }
    assert_eq!((first.header("idempotent-replayed"), second.header("idempotent-replayed")), (None, Some("true")));
}

#[tokio::test(start_paused = true)]
async fn twenty_replays_execute_nothing_and_do_not_extend_the_retention() {
    let world = World::new();
    let first = world.post("k").await;
    for _ in 0..20 {
        tokio::time::advance(std::time::Duration::from_secs(600)).await;
        let replay = world.post("k").await;
        assert!(replay.is_replay());
        assert_eq!(replay.header("idempotency-key-expires"), first.header("idempotency-key-expires"));
    }
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_retention_the_key_is_new() {
    let world = World::new();
    world.post("k").await;
    tokio::time::advance(std::time::Duration::from_secs(24 * 3600)).await;
    let answer = world.send(post("k").body("[]")).await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    let seen = world.inner.seen();
    assert_ne!(seen[0].permit.unwrap().operation_id, seen[1].permit.unwrap().operation_id);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_linked_to_the_trace_of_the_original() {
    let world = World::new();
    world.post("k").await;
    assert!(world.links.lock().unwrap().is_empty());
    world.post("k").await;
    assert_eq!(*world.links.lock().unwrap(), ["00-this-request-01"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_store_is_given_once_and_then_its_tombstone() {
    let world = World::new();
    let large = Bytes::from(vec![b'x'; 5 * BODY_MAX]);
    world.inner.will(Act::Answer(labelled(201, "", Label::Final).map(|_| Full::new(large.clone()))));
    let first = world.post("k").await;
    assert_eq!((first.status, first.body), (201, large));
    let second = world.post("k").await;
    second.assert_problem(201, "response_too_large_to_replay");
    assert!(second.is_replay());
    assert_eq!(second.header("location"), Some("/things/1"));
    assert_eq!(
        (second.json()["retryable"].clone(), second.json()["traceId"].clone()),
        (false.into(), "trace-1".into())
    );
    assert_eq!(world.inner.executions(), 1);
}
