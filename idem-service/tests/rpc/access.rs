//! Who may call what, for which scope.

use std::io::Write;

use database::testing::sqlite_url;
use idem_proto::idem::v1 as proto;
use tempfile::NamedTempFile;
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::calls::{reason, reserve_request, stored};
use crate::server::Server;

const TOKENS: &str = r#"[
    {"service": "gateway", "token": "gateway-token", "scopes": ["rest/*"], "rpcs": ["IdempotencyService/*"]},
    {"service": "reader", "token": "reader-token", "scopes": ["*"], "rpcs": ["Get"]},
    {"service": "operator", "token": "operator-token", "scopes": ["rest/a", "mail"], "rpcs": ["AdminService/*"]},
    {"service": "former", "token": "former-token", "scopes": ["*"], "rpcs": ["*"], "expiresAt": "2020-01-01T00:00:00Z"}
]"#;

async fn guarded() -> (Server, NamedTempFile) {
    let mut tokens = NamedTempFile::new().unwrap();
    tokens.write_all(TOKENS.as_bytes()).unwrap();
    let flag = format!("--service-tokens={}", tokens.path().display());
    (Server::start(sqlite_url(), &[&flag]).await, tokens)
}

fn with_token<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn verdict<T>(answer: Result<T, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), if status.code() == Code::NotFound { String::new() } else { reason(&status) }),
    }
}

#[tokio::test]
async fn each_caller_has_its_rpcs_and_scopes() {
    let (server, _tokens) = guarded().await;
    let in_scope = |scope: &str| proto::ReserveRequest { scope: scope.to_owned(), ..reserve_request("k") };
    let table = [
        (None, "rest/a", Code::Unauthenticated, "UNAUTHENTICATED"),
        (Some("wrong"), "rest/a", Code::Unauthenticated, "UNAUTHENTICATED"),
        (Some("former-token"), "rest/a", Code::Unauthenticated, "UNAUTHENTICATED"),
        (Some("reader-token"), "rest/a", Code::PermissionDenied, "RPC_NOT_GRANTED"),
        (Some("operator-token"), "rest/a", Code::PermissionDenied, "RPC_NOT_GRANTED"),
        (Some("gateway-token"), "mail", Code::PermissionDenied, "SCOPE_NOT_GRANTED"),
        (Some("gateway-token"), "rest", Code::PermissionDenied, "SCOPE_NOT_GRANTED"),
        (Some("gateway-token"), "rest/a", Code::Ok, ""),
        (Some("gateway-token"), "rest/b", Code::Ok, ""),
    ];
    for (token, scope, code, why) in table {
        let answer = server.client().reserve(with_token(in_scope(scope), token)).await;
        assert_eq!(verdict(answer), (code, why.to_owned()), "{token:?} {scope}");
    }
    server.stop().await;
}

#[tokio::test]
async fn scope_is_judged_by_every_rpc() {
    let (server, _tokens) = guarded().await;
    let (scope, key, operation_id) = ("mail".to_owned(), "k".to_owned(), Uuid::new_v4().to_string());
    let (mut client, mut admin) = (server.client(), server.admin_client());
    let token = Some("gateway-token");
    let (s, k, o) = (scope.clone(), key.clone(), operation_id.clone());
    let attempt_id = Uuid::new_v4().to_string();
    let reclaim =
        proto::ReclaimRequest { scope: s, key: k, operation_id: o, fencing_token: 1, attempt_id, lease: None };
    let (s, k, o) = (scope.clone(), key.clone(), operation_id.clone());
    let response = Some(stored(200));
    let complete =
        proto::CompleteRequest { scope: s, key: k, operation_id: o, fencing_token: 1, response, ..Default::default() };
    // One item of a scope that is not granted, behind one that is.
    let granted = proto::ReserveRequest { scope: "rest/a".to_owned(), ..reserve_request("granted") };
    let foreign = proto::ReserveRequest { scope: scope.clone(), ..reserve_request("k") };
    let reserve_many = proto::ReserveManyRequest { items: vec![granted, foreign] };
    let in_rest = proto::CompleteRequest { scope: "rest/a".to_owned(), ..complete.clone() };
    let complete_many = proto::CompleteManyRequest { items: vec![in_rest, complete.clone()] };
    let (s, k, o) = (scope.clone(), key.clone(), operation_id.clone());
    let release = proto::ReleaseRequest { scope: s, key: k, operation_id: o, fencing_token: 1 };
    let (s, k, o) = (scope.clone(), key.clone(), operation_id.clone());
    let abandon = proto::AbandonRequest { scope: s, key: k, operation_id: o, fencing_token: 1 };
    let (s, k, o) = (scope.clone(), key.clone(), operation_id.clone());
    let renew = proto::RenewRequest { scope: s, key: k, operation_id: o, fencing_token: 1, lease: None };
    let get = proto::GetRequest { scope, key: key.clone() };
    let resolve = proto::ResolveRequest {
        scope: "rest/b".to_owned(),
        key,
        reason: "why".to_owned(),
        action: Some(proto::resolve_request::Action::Release(proto::ResolveRelease {})),
        ..Default::default()
    };
    let operator = Some("operator-token");
    let list = proto::ListRequest { scope: "rest/b".to_owned(), ..Default::default() };
    let stats = proto::StatsRequest { scope: "orders/*".to_owned() };
    let list_stale = proto::ListStaleRequest { scope: "rest/b".to_owned(), ..Default::default() };
    let verdicts = [
        verdict(client.reclaim(with_token(reclaim, token)).await),
        verdict(client.complete(with_token(complete, token)).await),
        verdict(client.reserve_many(with_token(reserve_many, token)).await),
        verdict(client.complete_many(with_token(complete_many, token)).await),
        verdict(client.release(with_token(release, token)).await),
        verdict(client.abandon(with_token(abandon, token)).await),
        verdict(client.renew(with_token(renew, token)).await),
        verdict(client.get(with_token(get, token)).await),
        verdict(admin.resolve(with_token(resolve, operator)).await),
        verdict(admin.list(with_token(list, operator)).await),
        verdict(admin.stats(with_token(stats, operator)).await),
        verdict(admin.list_stale(with_token(list_stale, operator)).await),
    ];
    for (row, verdict) in verdicts.into_iter().enumerate() {
        assert_eq!(verdict, (Code::PermissionDenied, "SCOPE_NOT_GRANTED".to_owned()), "row {row}");
    }
    let nothing_done = proto::GetRequest { scope: "rest/a".to_owned(), key: "granted".to_owned() };
    assert_eq!(verdict(client.get(with_token(nothing_done, token)).await).0, Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn admin_rpcs_need_their_own_grant() {
    let (server, _tokens) = guarded().await;
    let mut admin = server.admin_client();
    let listed = admin.list(with_token(proto::ListRequest::default(), Some("gateway-token"))).await;
    assert_eq!(verdict(listed), (Code::PermissionDenied, "RPC_NOT_GRANTED".to_owned()));
    let listed = admin.list(with_token(proto::ListRequest::default(), Some("operator-token"))).await;
    assert_eq!(verdict(listed).0, Code::Ok);
    server.stop().await;
}
