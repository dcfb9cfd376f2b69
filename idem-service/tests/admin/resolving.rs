//! Resolve, and its audit table.

use database::StoreUrl;
use database::testing::Scratch;
use idem_proto::idem::v1 as proto;
use proto::resolve_request::Action;
use tonic::Code;

use crate::calls::{Command, Outcome, SCOPE, fields, finish, get, grant, reason, reserve, stored};
use crate::server::Server;

fn request(key: &str, fencing_token: i64, action: Action) -> proto::ResolveRequest {
    proto::ResolveRequest {
        scope: SCOPE.to_owned(),
        key: key.to_owned(),
        fencing_token,
        reason: "looked at the acquirer".to_owned(),
        operator: "ada".to_owned(),
        action: Some(action),
    }
}

fn release() -> Action {
    Action::Release(proto::ResolveRelease {})
}

/// Key, action, tokens before and after, reason, operator, service.
type AuditLine = (String, String, Option<i64>, i64, String, String, String);

/// The audit table of a store that nobody has open.
async fn audits(store: &Scratch) -> Vec<AuditLine> {
    const SELECT: &str = "SELECT key, action, fencing_token_before, fencing_token_after, reason, operator, service \
                          FROM idem_audit ORDER BY id";
    match store.url() {
        StoreUrl::Sqlite(path) => {
            let file = rusqlite::Connection::open(path).unwrap();
            let mut select = file.prepare(SELECT).unwrap();
            let lines = select
                .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?, r.get(6)?)));
            lines.unwrap().map(Result::unwrap).collect()
        }
        StoreUrl::Postgres(config) => {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
            let select = async {
                let rows = client.query(SELECT, &[]).await.unwrap();
                drop(client);
                rows
            };
            let (rows, ended) = tokio::join!(select, connection);
            ended.unwrap();
            let line = |r: &tokio_postgres::Row| (r.get(0), r.get(1), r.get(2), r.get(3), r.get(4), r.get(5), r.get(6));
            rows.iter().map(line).collect()
        }
    }
}

async fn settles_by_hand_fences_the_holder_and_writes_it_down(server: Server) {
    let client = server.client();
    let mut admin = server.admin_client();

    let held = grant(&client, "completed").await;
    let resolved = admin.resolve(request("completed", held.fencing_token, Action::Complete(stored(201)))).await;
    let proto::ResolveResponse { record, resolved_at } = resolved.unwrap().into_inner();
    let record = record.unwrap();
    assert_eq!((record.state(), record.status, record.fencing_token), (proto::State::Completed, 201, 2));
    assert_eq!(resolved_at, record.updated_at);
    assert_eq!(
        finish(&client, Command::Complete, "completed", &held).await,
        "superseded by completed, with its answer"
    );
    let Outcome::Replay(replay) = reserve(&client, "completed").await else { panic!("it replays") };
    assert_eq!(replay.response, Some(stored(201)));

    let held = grant(&client, "released").await;
    admin.resolve(request("released", 0, release())).await.unwrap();
    assert_eq!(finish(&client, Command::Complete, "released", &held).await, "superseded by released");
    let again = grant(&client, "released").await;
    assert_eq!((again.operation_id, again.fencing_token), (held.operation_id, 3), "usable again at once");

    let held = grant(&client, "abandoned").await;
    admin.resolve(request("abandoned", 1, Action::Abandon(proto::ResolveAbandon {}))).await.unwrap();
    assert_eq!(finish(&client, Command::Complete, "abandoned", &held).await, "superseded by in_doubt");
    let Outcome::Stale(stale) = reserve(&client, "abandoned").await else { panic!("it must be asked for") };
    assert_eq!(stale.fencing_token, 2);

    let store = server.stop().await.unwrap();
    let line = |key: &str, action: &str| {
        let text = str::to_owned;
        (text(key), text(action), Some(1), 2, text("looked at the acquirer"), text("ada"), text("anonymous"))
    };
    let expected = [line("completed", "complete"), line("released", "release"), line("abandoned", "abandon")];
    assert_eq!(audits(&store).await, expected);
}

#[tokio::test]
async fn settles_by_hand_and_writes_it_down_on_sqlite() {
    settles_by_hand_fences_the_holder_and_writes_it_down(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn settles_by_hand_and_writes_it_down_on_postgres() {
    settles_by_hand_fences_the_holder_and_writes_it_down(Server::on_postgres("resolve").await).await;
}

async fn refusals_change_nothing_and_are_not_written_down(server: Server) {
    let client = server.client();
    let mut admin = server.admin_client();
    let held = grant(&client, "completed").await;
    finish(&client, Command::Complete, "completed", &held).await;
    grant(&client, "held").await;
    let table = [
        (request("absent", 0, release()), Code::NotFound, "NO_RECORD"),
        (request("completed", 0, release()), Code::FailedPrecondition, "ALREADY_COMPLETED"),
        (request("completed", 9, Action::Complete(stored(402))), Code::FailedPrecondition, "ALREADY_COMPLETED"),
        (request("held", 9, release()), Code::Aborted, "TOKEN_CHANGED"),
    ];
    for (request, code, why) in table {
        let before = get(&client, &request.key).await.ok();
        let refused = admin.resolve(request.clone()).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, why), "{request:?}");
        assert_eq!(get(&client, &request.key).await.ok(), before);
    }
    // A repeat that passes the token it saw is refused: it has been settled.
    admin.resolve(request("held", 1, release())).await.unwrap();
    let refused = admin.resolve(request("held", 1, release())).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Aborted, "TOKEN_CHANGED"));
    let store = server.stop().await.unwrap();
    assert_eq!(audits(&store).await.len(), 1);
}

#[tokio::test]
async fn refusals_change_nothing_on_sqlite() {
    refusals_change_nothing_and_are_not_written_down(Server::on_sqlite().await).await;
}

#[tokio::test]
async fn refusals_change_nothing_on_postgres() {
    refusals_change_nothing_and_are_not_written_down(Server::on_postgres("refusals").await).await;
}

#[tokio::test]
async fn resolve_names_each_field_that_is_out_of_bounds() {
    type Change = fn(&mut proto::ResolveRequest);
    let server = Server::on_sqlite().await;
    let table: [(&[&str], Change); 16] = [
        (&["scope", "key"], |r| (r.scope, r.key) = (String::new(), String::new())),
        (&["fencing_token"], |r| r.fencing_token = -1),
        (&["reason"], |r| r.reason.clear()),
        (&["reason"], |r| r.reason = "  ".to_owned()),
        (&["reason"], |r| r.reason = "r".repeat(1001)),
        (&["reason"], |r| r.reason = "a\u{0}b".to_owned()),
        (&["operator"], |r| r.operator = "o".repeat(201)),
        (&["action"], |r| r.action = None),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(0)))),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(101)))),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(103)))),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(202)))),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(429)))),
        (&["complete.status"], |r| r.action = Some(Action::Complete(stored(503)))),
        (&["complete.headers"], |r| r.action = Some(Action::Complete(with_header(stored(201), "set cookie")))),
        (&["reason", "action"], |r| (r.reason, r.action) = (String::new(), None)),
    ];
    for (expected, change) in table {
        let mut request = request("k", 0, release());
        change(&mut request);
        let refused = server.admin_client().resolve(request).await.unwrap_err();
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, expected.iter().map(|f| f.to_string()).collect())
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn what_was_settled_by_hand_is_listed_latest_first_to_whoever_may_see_its_scope() {
    let server = Server::on_sqlite().await;
    let (client, mut admin) = (server.client(), server.admin_client());
    for key in ["first", "second"] {
        grant(&client, key).await;
        admin.resolve(request(key, 0, release())).await.unwrap();
    }
    let mut listed = async |request: proto::ListAuditRequest| {
        let page = admin.list_audit(request).await.unwrap().into_inner();
        page.entries.into_iter().map(|entry| (entry.key, entry.action, entry.operator)).collect::<Vec<_>>()
    };
    let line = |key: &str| (key.to_owned(), "release".to_owned(), "ada".to_owned());
    assert_eq!(listed(proto::ListAuditRequest::default()).await, [line("second"), line("first")]);
    let of_one = proto::ListAuditRequest { key: "first".to_owned(), ..Default::default() };
    assert_eq!(listed(of_one).await, [line("first")]);
    let elsewhere = proto::ListAuditRequest { scope: "elsewhere/*".to_owned(), ..Default::default() };
    assert_eq!(listed(elsewhere).await, []);

    let page = reqwest::get(server.url("/console/api/audit?pageSize=1")).await.unwrap();
    let page: serde_json::Value = page.json().await.unwrap();
    let entry = &page["entries"][0];
    assert_eq!((&entry["key"], &entry["fencingTokenAfter"]), (&"second".into(), &2.into()));
    server.stop().await;
}

fn with_header(mut stored: proto::StoredResponse, name: &str) -> proto::StoredResponse {
    stored.headers.push(proto::Header { name: name.to_owned(), value: "v".to_owned() });
    stored
}
