//! List, Stats and ListStale.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use database::testing::sqlite_url;
use idem_proto::idem::v1 as proto;
use proto::admin_service_client::AdminServiceClient;
use tempfile::NamedTempFile;
use tonic::transport::Channel;
use tonic::{Code, Request};

use crate::calls::{Command, fields, finish, grant, reserve_request, seconds, send};
use crate::server::Server;

const LEASE: Duration = Duration::from_secs(60);

/// One key in each state, and one whose lease is over.
async fn one_of_each(server: &Server) {
    let client = server.client();
    grant(&client, "lease over").await;
    server.hand.advance(LEASE);
    grant(&client, "in progress").await;
    for (key, command) in
        [("in doubt", Command::Abandon), ("completed", Command::Complete), ("released", Command::Release)]
    {
        let held = grant(&client, key).await;
        finish(&client, command, key, &held).await;
    }
}

async fn list(admin: &mut AdminServiceClient<Channel>, request: proto::ListRequest) -> (Vec<String>, String) {
    let proto::ListResponse { records, next_page_token } = admin.list(request).await.unwrap().into_inner();
    (records.into_iter().map(|record| record.key).collect(), next_page_token)
}

async fn stale(admin: &mut AdminServiceClient<Channel>, request: proto::ListStaleRequest) -> Vec<String> {
    let answer = admin.list_stale(request).await.unwrap().into_inner();
    answer.records.into_iter().map(|record| record.key).collect()
}

async fn pages_hold_every_record_once_oldest_change_first(server: Server) {
    let client = server.client();
    let keys: Vec<String> = (0..25).map(|row| format!("key {row:02}")).collect();
    for key in &keys {
        grant(&client, key).await;
    }
    let mut admin = server.admin_client();
    let (mut listed, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (page, next) =
            list(&mut admin, proto::ListRequest { page_size: 10, page_token, ..Default::default() }).await;
        assert!(page.len() <= 10);
        listed.extend(page);
        pages += 1;
        page_token = next;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!((listed, pages), (keys, 3));
    let (all, next) = list(&mut admin, proto::ListRequest { page_size: 25, ..Default::default() }).await;
    assert_eq!((all.len(), next.as_str()), (25, ""), "a full last page has no next one");
    server.stop().await;
}

#[tokio::test]
async fn pages_hold_every_record_once_on_sqlite() {
    pages_hold_every_record_once_oldest_change_first(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn pages_hold_every_record_once_on_postgres() {
    pages_hold_every_record_once_oldest_change_first(Server::on_postgres("pages").await).await;
}

async fn lists_and_counts_by_state_and_age(server: Server) {
    one_of_each(&server).await;
    let mut admin = server.admin_client();
    for (states, expected) in [
        (vec![proto::State::InProgress], vec!["lease over", "in progress"]),
        (vec![proto::State::InDoubt, proto::State::Released], vec!["in doubt", "released"]),
        (vec![proto::State::Completed], vec!["completed"]),
        (vec![], vec!["lease over", "in progress", "in doubt", "completed", "released"]),
    ] {
        let states: Vec<i32> = states.into_iter().map(i32::from).collect();
        let (keys, _) = list(&mut admin, proto::ListRequest { states, ..Default::default() }).await;
        assert_eq!(keys, expected);
    }
    let (old, _) = list(&mut admin, proto::ListRequest { older_than: seconds(60), ..Default::default() }).await;
    assert_eq!(old, ["lease over"]);
    let stats = admin.stats(proto::StatsRequest::default()).await.unwrap().into_inner();
    assert_eq!((stats.in_progress, stats.lease_over, stats.in_doubt), (2, 1, 1));
    assert_eq!((stats.completed, stats.released, stats.expired), (1, 1, 0));
    assert!(stats.oldest_in_doubt_at.is_some());
    server.hand.advance(Duration::from_secs(24 * 3600));
    let stats = admin.stats(proto::StatsRequest::default()).await.unwrap().into_inner();
    assert_eq!((stats.in_progress, stats.lease_over, stats.in_doubt), (2, 2, 1));
    assert_eq!((stats.completed, stats.released, stats.expired), (0, 0, 2));
    server.stop().await;
}

#[tokio::test]
async fn lists_and_counts_by_state_and_age_on_sqlite() {
    lists_and_counts_by_state_and_age(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn lists_and_counts_by_state_and_age_on_postgres() {
    lists_and_counts_by_state_and_age(Server::on_postgres("stats").await).await;
}

async fn stale_key_is_handed_out_once_per_recovery_lease(server: Server) {
    one_of_each(&server).await;
    let (mut one, mut other) = (server.admin_client(), server.admin_client());
    let request = || proto::ListStaleRequest { recovery_lease: seconds(10), ..Default::default() };
    let handed_out = stale(&mut one, request()).await;
    assert_eq!(handed_out.into_iter().collect::<BTreeSet<_>>(), ["in doubt", "lease over"].map(str::to_owned).into());
    assert!(stale(&mut other, request()).await.is_empty(), "hidden from every caller");
    assert!(stale(&mut one, request()).await.is_empty(), "also from the one that has them");
    server.hand.advance(Duration::from_secs(10));
    let limited = stale(&mut other, proto::ListStaleRequest { limit: 1, ..request() }).await;
    assert_eq!(limited.len(), 1);
    let rest = stale(&mut one, request()).await;
    assert!(rest.len() == 1 && rest != limited);
    server.stop().await;
}

#[tokio::test]
async fn stale_key_is_handed_out_once_per_recovery_lease_on_sqlite() {
    stale_key_is_handed_out_once_per_recovery_lease(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn stale_key_is_handed_out_once_per_recovery_lease_on_postgres() {
    stale_key_is_handed_out_once_per_recovery_lease(Server::on_postgres("stale").await).await;
}

#[tokio::test]
async fn every_call_sees_only_the_scopes_of_its_caller() {
    let mut tokens = NamedTempFile::new().unwrap();
    let grants = r#"[
        {"service": "everything", "token": "all", "scopes": ["*"], "rpcs": ["*"]},
        {"service": "a-and-mail", "token": "some", "scopes": ["rest/a", "mail/*"], "rpcs": ["AdminService/*"]}
    ]"#;
    tokens.write_all(grants.as_bytes()).unwrap();
    let flag = format!("--service-tokens={}", tokens.path().display());
    let server = Server::start(sqlite_url(), &[&flag]).await;
    for scope in ["rest/a", "rest/ab", "rest/b", "mail/x", "mail"] {
        let request = proto::ReserveRequest { scope: scope.to_owned(), ..reserve_request(scope) };
        server.client().reserve(as_caller("all", request)).await.unwrap();
    }
    server.hand.advance(LEASE);
    let mut admin = server.admin_client();
    for (scope, expected) in [
        ("", vec!["rest/a", "mail/x"]),
        ("rest/*", vec!["rest/a"]),
        ("*", vec!["rest/a", "mail/x"]),
        ("mail/*", vec!["mail/x"]),
        ("rest/a", vec!["rest/a"]),
    ] {
        let scope = || scope.to_owned();
        let request = proto::ListRequest { scope: scope(), ..Default::default() };
        let listed = admin.list(as_caller("some", request)).await.unwrap().into_inner();
        let listed: Vec<String> = listed.records.into_iter().map(|record| record.scope).collect();
        assert_eq!(listed, expected, "{:?}", scope());
        let request = proto::StatsRequest { scope: scope() };
        let stats = admin.stats(as_caller("some", request)).await.unwrap().into_inner();
        assert_eq!(stats.in_progress as usize, expected.len(), "{:?}", scope());
    }
    let handed_out = admin.list_stale(as_caller("some", proto::ListStaleRequest::default())).await.unwrap();
    assert_eq!(handed_out.into_inner().records.len(), 2);
    server.stop().await;
}

fn as_caller<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

#[tokio::test]
async fn listings_name_each_field_that_is_out_of_bounds() {
    let server = Server::on_sqlite().await;
    let mut admin = server.admin_client();
    let lists = [
        ("scope", proto::ListRequest { scope: "s".repeat(202), ..Default::default() }),
        ("scope", proto::ListRequest { scope: "a\n*".to_owned(), ..Default::default() }),
        ("states", proto::ListRequest { states: vec![0], ..Default::default() }),
        ("states", proto::ListRequest { states: vec![1, 99], ..Default::default() }),
        ("older_than", proto::ListRequest { older_than: seconds(-1), ..Default::default() }),
        ("page_size", proto::ListRequest { page_size: 501, ..Default::default() }),
        ("page_token", proto::ListRequest { page_token: "00ff".to_owned(), ..Default::default() }),
    ];
    for (field, request) in lists {
        let refused = admin.list(request).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec![field.to_owned()]));
    }
    let stales = [
        ("limit", proto::ListStaleRequest { limit: 501, ..Default::default() }),
        ("recovery_lease", proto::ListStaleRequest { recovery_lease: seconds(3601), ..Default::default() }),
    ];
    for (field, request) in stales {
        let refused = admin.list_stale(request).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec![field.to_owned()]));
    }
    server.stop().await;
}

#[tokio::test]
async fn listed_records_carry_everything_but_the_body() {
    let server = Server::on_sqlite().await;
    one_of_each(&server).await;
    let states = vec![proto::State::Completed.into()];
    let request = proto::ListRequest { states, ..Default::default() };
    let listed = server.admin_client().list(request).await.unwrap().into_inner();
    let got = crate::calls::get(&server.client(), "completed").await.unwrap();
    assert_eq!(listed.records, [got]);
    let crate::calls::Outcome::Replay(_) = send(&server.client(), reserve_request("completed")).await else {
        panic!("a completed key replays")
    };
    server.stop().await;
}
