//! Bad input: INVALID_ARGUMENT that names the field, and nothing stored.

use bytes::Bytes;
use idem_proto::idem::v1 as proto;
use prost_types::Duration;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::calls::{SCOPE, fields, get, grant, reason, reserve_request, seconds, stored};
use crate::server::Server;

fn assert_invalid(status: &Status, expected: &[&str], what: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
    assert_eq!(reason(status), "INVALID_FIELD", "{what}");
    assert_eq!(fields(status), expected, "{what}");
}

#[tokio::test]
async fn reserve_names_each_field_that_is_out_of_bounds() {
    type Change = fn(&mut proto::ReserveRequest);
    let server = Server::on_sqlite().await;
    let table: [(&[&str], Change); 33] = [
        (&["scope"], |r| r.scope.clear()),
        (&["scope"], |r| r.scope = "s".repeat(201)),
        (&["scope"], |r| r.scope = "a\nb".to_owned()),
        (&["key"], |r| r.key.clear()),
        (&["key"], |r| r.key = "🎟".repeat(201)),
        (&["key"], |r| r.key = "a\tb".to_owned()),
        (&["key"], |r| r.key = "a\u{85}b".to_owned()),
        (&["fingerprint"], |r| r.fingerprint = Bytes::new()),
        (&["fingerprint"], |r| r.fingerprint = vec![1; 31].into()),
        (&["fingerprint"], |r| r.fingerprint = vec![1; 33].into()),
        (&["attempt_id"], |r| r.attempt_id.clear()),
        (&["attempt_id"], |r| r.attempt_id = "attempt-1".to_owned()),
        (&["attempt_id"], |r| r.attempt_id = Uuid::nil().to_string()),
        (&["lease"], |r| r.lease = Some(Duration { seconds: 0, nanos: 99_999_999 })),
        (&["lease"], |r| r.lease = Some(Duration { seconds: 0, nanos: 0 })),
        (&["lease"], |r| r.lease = Some(Duration { seconds: 3600, nanos: 1 })),
        (&["lease"], |r| r.lease = seconds(-1)),
        (&["lease"], |r| r.lease = Some(Duration { seconds: 1, nanos: -1 })),
        (&["lease"], |r| r.lease = Some(Duration { seconds: 1, nanos: 1_000_000_000 })),
        (&["lease"], |r| r.lease = seconds(i64::MAX)),
        (&["lease"], |r| r.lease = seconds(i64::MIN)),
        (&["retention"], |r| r.retention = seconds(60)),
        (&["retention"], |r| r.retention = seconds(30 * 24 * 3600 + 1)),
        (&["retention"], |r| r.retention = seconds(-1)),
        (&["retention"], |r| r.retention = Some(Duration { seconds: i64::MAX, nanos: i32::MAX })),
        (&["retention"], |r| (r.lease, r.retention) = (seconds(3600), seconds(3600))),
        (&["wait"], |r| r.wait = seconds(31)),
        (&["wait"], |r| r.wait = Some(Duration { seconds: 30, nanos: 1 })),
        (&["wait"], |r| r.wait = Some(Duration { seconds: 0, nanos: -1 })),
        (&["trace_context"], |r| r.trace_context = "t".repeat(129)),
        (&["trace_context"], |r| r.trace_context = "é".to_owned()),
        (&["scope", "key", "lease", "wait"], |r| {
            (r.scope, r.key, r.lease, r.wait) = (String::new(), String::new(), seconds(-1), seconds(31));
        }),
        (&["scope", "key", "fingerprint", "attempt_id"], |r| *r = proto::ReserveRequest::default()),
    ];
    for (expected, change) in table {
        let mut request = reserve_request("k");
        change(&mut request);
        let refused = server.client().reserve(request.clone()).await.unwrap_err();
        assert_invalid(&refused, expected, &format!("{request:?}"));
    }
    assert_eq!(get(&server.client(), "k").await.unwrap_err().code(), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn bounds_themselves_are_accepted() {
    type Change = fn(&mut proto::ReserveRequest);
    let server = Server::on_sqlite().await;
    let table: [Change; 7] = [
        |r| r.scope = "s".repeat(200),
        |r| r.key = "🎟".repeat(200),
        |r| r.lease = Some(Duration { seconds: 0, nanos: 100_000_000 }),
        |r| (r.lease, r.retention) = (seconds(3600), Some(Duration { seconds: 3600, nanos: 1_000 })),
        |r| r.retention = seconds(30 * 24 * 3600),
        |r| r.wait = seconds(30),
        |r| r.trace_context = "t".repeat(128),
    ];
    for (row, change) in table.into_iter().enumerate() {
        let mut request = reserve_request(&format!("key {row}"));
        change(&mut request);
        server.client().reserve(request).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn complete_names_the_part_of_the_response_that_is_out_of_bounds() {
    let server = Server::on_sqlite().await;
    let held = grant(&server.client(), "k").await;
    let header = |name: &str, value: &str| proto::Header { name: name.to_owned(), value: value.to_owned() };
    let with = |headers: Vec<proto::Header>| proto::StoredResponse { headers, ..stored(201) };
    let table = [
        ("response", None),
        ("response.status", Some(stored(99))),
        ("response.status", Some(stored(100))),
        ("response.status", Some(stored(101))),
        ("response.status", Some(stored(199))),
        ("response.status", Some(stored(600))),
        ("response.status", Some(stored(u32::MAX))),
        ("response.headers", Some(with(vec![header("", "x")]))),
        ("response.headers", Some(with(vec![header("set cookie", "x")]))),
        ("response.headers", Some(with(vec![header("a:", "x")]))),
        ("response.headers", Some(with(vec![header("ä", "x")]))),
        ("response.headers", Some(with(vec![header("a", "x\r\ny")]))),
        ("response.headers", Some(with(vec![header("a", "x"); 65]))),
        ("response.headers", Some(with(vec![header("a", &"x".repeat(17_000))]))),
        ("response.body", Some(proto::StoredResponse { body: vec![0; 1024 * 1024 + 1].into(), ..stored(201) })),
        ("response.resource_id", Some(proto::StoredResponse { resource_id: "r".repeat(201), ..stored(201) })),
    ];
    for (field, response) in table {
        let request = proto::CompleteRequest {
            scope: SCOPE.to_owned(),
            key: "k".to_owned(),
            operation_id: held.operation_id.clone(),
            fencing_token: held.fencing_token,
            response,
            ..Default::default()
        };
        let refused = server.client().complete(request).await.unwrap_err();
        assert_invalid(&refused, &[field], field);
    }
    assert_eq!(get(&server.client(), "k").await.unwrap().state(), proto::State::InProgress);
    server.stop().await;
}

#[tokio::test]
async fn every_other_request_checks_its_fields_too() {
    let server = Server::on_sqlite().await;
    let mut client = server.client();
    let reclaimed = client.reclaim(proto::ReclaimRequest { lease: seconds(-1), ..Default::default() }).await;
    assert_invalid(&reclaimed.unwrap_err(), &["scope", "key", "operation_id", "attempt_id", "lease"], "reclaim");
    let released = client.release(proto::ReleaseRequest::default()).await;
    assert_invalid(&released.unwrap_err(), &["scope", "key", "operation_id"], "release");
    let abandoned = client.abandon(proto::AbandonRequest::default()).await;
    assert_invalid(&abandoned.unwrap_err(), &["scope", "key", "operation_id"], "abandon");
    let renewed = client.renew(proto::RenewRequest { lease: seconds(3601), ..Default::default() }).await;
    assert_invalid(&renewed.unwrap_err(), &["scope", "key", "operation_id", "lease"], "renew");
    let got = client.get(proto::GetRequest::default()).await;
    assert_invalid(&got.unwrap_err(), &["scope", "key"], "get");
    server.stop().await;
}

/// A request whose texts may be any bytes, on the field numbers of the real ones.
#[derive(Clone, PartialEq, prost::Message)]
struct Raw {
    #[prost(bytes = "bytes", tag = "1")]
    scope: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    third: Bytes,
}

async fn send_raw(server: &Server, method: &'static str, raw: Raw) -> Status {
    let mut grpc = tonic::client::Grpc::new(server.channel());
    grpc.ready().await.unwrap();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(method);
    let codec = tonic_prost::ProstCodec::<Raw, proto::ReserveResponse>::default();
    grpc.unary(tonic::Request::new(raw), path, codec).await.unwrap_err()
}

#[tokio::test]
async fn text_that_is_not_utf8_and_messages_that_are_too_large_are_invalid_arguments() {
    let server = Server::on_sqlite().await;
    let raw = Raw { scope: SCOPE.into(), key: Bytes::from_static(b"a\xffb"), third: vec![7; 32].into() };
    let refused = send_raw(&server, "/idem.v1.IdempotencyService/Reserve", raw).await;
    assert_invalid(&refused, &[""], "not UTF-8");
    let large = Raw { scope: SCOPE.into(), key: "k".into(), third: vec![7; 5 * 1024 * 1024].into() };
    let refused = send_raw(&server, "/idem.v1.IdempotencyService/Reserve", large).await;
    assert_invalid(&refused, &[""], "too large");
    let refused =
        send_raw(&server, "/idem.v1.AdminService/Resolve", Raw { key: b"\xff".as_slice().into(), ..Raw::default() })
            .await;
    assert_invalid(&refused, &[""], "not UTF-8");
    server.stop().await;
}

#[tokio::test]
async fn messages_around_four_mib_are_refused_with_what_to_do_and_the_connection_lives_on() {
    const MIB: usize = 1024 * 1024;
    let server = Server::on_sqlite().await;
    // One channel, and so one connection, for all of it.
    let client = server.client();
    let held = grant(&client, "k").await;
    let complete = |size: usize| {
        let request = proto::CompleteRequest {
            scope: SCOPE.to_owned(),
            key: "k".to_owned(),
            operation_id: held.operation_id.clone(),
            fencing_token: held.fencing_token,
            response: Some(proto::StoredResponse { body: vec![b'x'; size].into(), ..stored(201) }),
            ..Default::default()
        };
        let mut client = client.clone();
        async move { client.complete(request).await }
    };
    let nearly_four = complete(39 * MIB / 10).await.unwrap_err();
    assert_invalid(&nearly_four, &["response.body"], "3.9 MiB");
    let over_four = complete(41 * MIB / 10).await.unwrap_err();
    assert_invalid(&over_four, &[""], "4.1 MiB");
    assert!(over_four.message().contains("send at most 4194304 bytes"), "{over_four:?}");
    let large = proto::ReserveRequest { scope: "s".repeat(41 * MIB / 10), ..reserve_request("other") };
    assert_invalid(&client.clone().reserve(large).await.unwrap_err(), &[""], "4.1 MiB");
    let resolve = |size: usize| proto::ResolveRequest {
        scope: SCOPE.to_owned(),
        key: "k".to_owned(),
        reason: "r".repeat(size),
        action: Some(proto::resolve_request::Action::Release(proto::ResolveRelease {})),
        ..Default::default()
    };
    assert_invalid(&server.admin_client().resolve(resolve(39 * MIB / 10)).await.unwrap_err(), &["reason"], "3.9 MiB");
    assert_invalid(&server.admin_client().resolve(resolve(41 * MIB / 10)).await.unwrap_err(), &[""], "4.1 MiB");

    let record = get(&client, "k").await.unwrap();
    assert_eq!(
        (record.state(), record.fencing_token),
        (proto::State::InProgress, held.fencing_token),
        "nothing is stored"
    );
    assert_eq!(get(&client, "other").await.unwrap_err().code(), tonic::Code::NotFound);
    complete(MIB).await.unwrap();
    assert_eq!(get(&client, "k").await.unwrap().state(), proto::State::Completed);
    server.stop().await;
}
