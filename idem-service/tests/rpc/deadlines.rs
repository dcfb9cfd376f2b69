//! A call past its deadline does no work: every RPC, over before it arrives and overtaken while its row is held by somebody else.

use std::time::Duration;

use database::StoreUrl;
use futures::future::join_all;
use idem_proto::idem::v1 as proto;
use tokio_postgres::{Client, NoTls};
use tonic::Code;

use crate::calls::{SCOPE, grant, reserve_request, seconds, stored};
use crate::raw::RawCall;
use crate::server::Server;

const ROWS: &str = "SELECT key, md5(k::text) FROM idem_keys AS k ORDER BY key";
const AUDITS: &str = "SELECT count(*) FROM idem_audit";

/// Sessions of this database, but for our own, that do or hold something.
const BUSY: &str = "\
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";

/// Statements that wait for a row and may still have patience left.
const PATIENT: &str = "\
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start > clock_timestamp() - INTERVAL '500 milliseconds'";

/// Every RPC that changes a key, on a key of its own where it has something to do; and every RPC that reads.
struct Calls {
    mutations: Vec<RawCall>,
    others: Vec<RawCall>,
}

impl Calls {
    async fn prepare(server: &Server) -> Self {
        let client = server.client();
        let mut held = Vec::new();
        for key in [
            "complete",
            "release",
            "abandon",
            "renew",
            "reclaim",
            "resolve",
            "reserve",
            "reserve many",
            "complete many",
        ] {
            held.push(grant(&client, key).await);
        }
        for (key, at) in [("reclaim", 4), ("reserve", 6), ("reserve many", 7)] {
            let proto::Granted { operation_id, fencing_token, .. } = held[at].clone();
            let (scope, key) = (SCOPE.to_owned(), key.to_owned());
            let released = proto::ReleaseRequest {
                scope: scope.clone(),
                key: key.clone(),
                operation_id: operation_id.clone(),
                fencing_token,
            };
            let abandoned = proto::AbandonRequest { scope, key: key.clone(), operation_id, fencing_token };
            if key.starts_with("reserve") {
                client.clone().release(released).await.unwrap();
            } else {
                client.clone().abandon(abandoned).await.unwrap();
            }
        }
        let names = |at: usize, key: &str| {
            (SCOPE.to_owned(), key.to_owned(), held[at].operation_id.clone(), held[at].fencing_token)
        };
        let (scope, key, operation_id, fencing_token) = names(0, "complete");
        let response = Some(stored(201));
        let complete =
            proto::CompleteRequest { scope, key, operation_id, fencing_token, response, ..Default::default() };
        let (scope, key, operation_id, fencing_token) = names(8, "complete many");
        let item = proto::CompleteRequest { scope, key, operation_id, fencing_token, ..complete.clone() };
        let complete_many = proto::CompleteManyRequest { items: vec![item] };
        let reserve_many = proto::ReserveManyRequest { items: vec![reserve_request("reserve many")] };
        let (scope, key, operation_id, fencing_token) = names(1, "release");
        let release = proto::ReleaseRequest { scope, key, operation_id, fencing_token };
        let (scope, key, operation_id, fencing_token) = names(2, "abandon");
        let abandon = proto::AbandonRequest { scope, key, operation_id, fencing_token };
        let (scope, key, operation_id, fencing_token) = names(3, "renew");
        let renew = proto::RenewRequest { scope, key, operation_id, fencing_token, lease: seconds(600) };
        let (scope, key, operation_id, fencing_token) = names(4, "reclaim");
        let attempt_id = uuid::Uuid::new_v4().to_string();
        let reclaim = proto::ReclaimRequest { scope, key, operation_id, fencing_token, attempt_id, lease: None };
        let resolve = proto::ResolveRequest {
            scope: SCOPE.to_owned(),
            key: "resolve".to_owned(),
            action: Some(proto::resolve_request::Action::Release(proto::ResolveRelease {})),
            reason: "a test".to_owned(),
            operator: "a tester".to_owned(),
            ..Default::default()
        };
        Self {
            mutations: vec![
                RawCall::new("/idem.v1.IdempotencyService/Reserve", &reserve_request("reserve")),
                RawCall::new("/idem.v1.IdempotencyService/Reclaim", &reclaim),
                RawCall::new("/idem.v1.IdempotencyService/Complete", &complete),
                RawCall::new("/idem.v1.IdempotencyService/ReserveMany", &reserve_many),
                RawCall::new("/idem.v1.IdempotencyService/CompleteMany", &complete_many),
                RawCall::new("/idem.v1.IdempotencyService/Release", &release),
                RawCall::new("/idem.v1.IdempotencyService/Abandon", &abandon),
                RawCall::new("/idem.v1.IdempotencyService/Renew", &renew),
                RawCall::new("/idem.v1.AdminService/Resolve", &resolve),
            ],
            others: vec![
                RawCall::new(
                    "/idem.v1.IdempotencyService/Get",
                    &proto::GetRequest { scope: SCOPE.to_owned(), key: "renew".to_owned() },
                ),
                RawCall::new("/idem.v1.AdminService/List", &proto::ListRequest::default()),
                RawCall::new("/idem.v1.AdminService/Stats", &proto::StatsRequest::default()),
                RawCall::new("/idem.v1.AdminService/ListStale", &proto::ListStaleRequest::default()),
            ],
        }
    }

    fn all(&self) -> impl Iterator<Item = &RawCall> {
        self.mutations.iter().chain(&self.others)
    }
}

async fn connect(server: &Server) -> Client {
    let Some(StoreUrl::Postgres(config)) = server.scratch.as_ref().map(|scratch| scratch.direct()) else {
        panic!("a server is needed")
    };
    let (client, connection) = config.connect(NoTls).await.unwrap();
    drop(chassis::tasks::Tasks::new().spawn("client", connection));
    client
}

/// Every key with a digest of its row, and how many audits there are.
async fn rows(client: &Client) -> (Vec<(String, String)>, i64) {
    let rows = client.query(ROWS, &[]).await.unwrap();
    let digests = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    (digests, client.query_one(AUDITS, &[]).await.unwrap().get(0))
}

async fn until_nothing_is_busy(client: &Client) {
    for _ in 0..1000 {
        if client.query_one(BUSY, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a session stays active or in a transaction");
}

/// How long a statement may wait for its row counts from its arrival, which on a busy machine is later than its caller's clock says.
async fn until_patience_is_over(client: &Client) {
    for _ in 0..1000 {
        if client.query_one(PATIENT, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a statement goes on arriving");
}

async fn expect_overtaken(calls: impl Iterator<Item = &RawCall>, server: &Server, timeout: &str, codes: &[Code]) {
    let sent = calls.map(|call| async move { (call.path, call.send(server, timeout).await) });
    for (path, status) in join_all(sent).await {
        let code = status.as_ref().map(tonic::Status::code);
        assert!(code.is_some_and(|code| codes.contains(&code)), "{path}: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_over_when_it_arrives_does_nothing_on_postgres() {
    let server = Server::on_postgres("deadline_over").await;
    let calls = Calls::prepare(&server).await;
    let client = connect(&server).await;
    let before = rows(&client).await;
    expect_overtaken(calls.all(), &server, "0n", &[Code::DeadlineExceeded]).await;
    until_nothing_is_busy(&client).await;
    assert_eq!(rows(&client).await, before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_overtaken_while_its_row_is_held_changes_nothing_on_postgres() {
    let server = Server::on_postgres("deadline_locked").await;
    let calls = Calls::prepare(&server).await;
    let (mut client, watching) = (connect(&server).await, connect(&server).await);
    let before = rows(&client).await;

    let holding = client.transaction().await.unwrap();
    holding.execute("SELECT 1 FROM idem_keys FOR UPDATE", &[]).await.unwrap();
    let refused = [Code::DeadlineExceeded, Code::Unavailable];
    expect_overtaken(calls.mutations.iter(), &server, "400m", &refused).await;
    assert_eq!(rows(&watching).await, before, "nothing happens while the rows are held");
    until_patience_is_over(&watching).await;
    holding.rollback().await.unwrap();
    until_nothing_is_busy(&watching).await;
    assert_eq!(rows(&watching).await, before, "whoever waited for a row leaves it alone when it is late");

    for call in calls.all() {
        let status = call.send(&server, "10S").await;
        assert!(status.is_none(), "{}: {status:?}", call.path);
    }
    until_nothing_is_busy(&watching).await;
    let (done, audits) = rows(&watching).await;
    let untouched: Vec<_> = done.iter().filter(|row| before.0.contains(row)).collect();
    assert!(untouched.is_empty(), "every key was changed by its call: {untouched:?}");
    assert_eq!(audits, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_outlives_the_callers_of_a_locked_table_on_postgres() {
    let server = Server::on_postgres("deadline_table").await;
    let calls = Calls::prepare(&server).await;
    let (mut client, watching) = (connect(&server).await, connect(&server).await);
    let holding = client.transaction().await.unwrap();
    holding.batch_execute("LOCK TABLE idem_keys, idem_audit").await.unwrap();
    expect_overtaken(calls.others.iter(), &server, "400m", &[Code::DeadlineExceeded, Code::Unavailable]).await;
    holding.rollback().await.unwrap();
    until_nothing_is_busy(&watching).await;
    assert_eq!(rows(&watching).await.1, 0);
    server.stop().await;
}
