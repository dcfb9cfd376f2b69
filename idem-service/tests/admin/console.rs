//! The console over HTTP: what it serves, to whom, and that it never shows a body.

use std::io::Write;

use database::testing::sqlite_url;
use idem_proto::idem::v1 as proto;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::calls::{Command, SCOPE, finish, get, grant, reserve_request};
use crate::server::{Server, config};

const TOKENS: &str = r#"[
    {"service": "gateway", "token": "gateway", "scopes": ["rest/*"], "rpcs": ["IdempotencyService/*"]},
    {"service": "viewer", "token": "viewer", "scopes": ["rest/*"], "rpcs": ["AdminService/List", "AdminService/Stats"]},
    {"service": "operator", "token": "operator", "scopes": ["rest/*"], "rpcs": ["AdminService/*"]},
    {"service": "elsewhere", "token": "elsewhere", "scopes": ["mail"], "rpcs": ["AdminService/*"]}
]"#;

async fn json_of(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let answer = request.send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

fn settle(key: &str, token: i64, action: Value) -> Value {
    json!({
        "scope": SCOPE, "key": key, "fencingToken": token, "reason": "looked", "operator": "ada", "action": action
    })
}

#[tokio::test]
async fn page_loads_nothing_from_elsewhere_and_runs_nothing_inline() {
    let server = Server::on_sqlite().await;
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/console", "text/html; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
    ] {
        let answer = reqwest::get(server.url(path)).await.unwrap();
        assert_eq!(
            (answer.status(), answer.headers()["content-type"].to_str().unwrap()),
            (StatusCode::OK, content_type)
        );
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        let text = answer.text().await.unwrap();
        assert!(!text.contains("http://") && !text.contains("https://"), "{path} loads from elsewhere");
        assert!(!text.contains("innerHTML") && !text.contains(" onclick") && !text.contains("<script>"), "{path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(reqwest::get(server.url(path)).await.unwrap().status(), StatusCode::OK, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn operator_finds_a_stuck_key_reads_why_and_settles_it() {
    let server = Server::on_sqlite().await;
    let (client, http) = (server.client(), Client::new());
    let held = grant(&client, "stuck & <b>odd</b>").await;
    let fine = grant(&client, "fine").await;
    finish(&client, Command::Complete, "fine", &fine).await;
    server.hand.advance(std::time::Duration::from_secs(60));

    let (status, stats) = json_of(http.get(server.url("/console/api/stats"))).await;
    assert_eq!((status, &stats["leaseOver"], &stats["completed"]), (StatusCode::OK, &json!(1), &json!(1)));
    let (_, listed) =
        json_of(http.get(server.url("/console/api/keys?states=in_progress,in_doubt&olderThanSeconds=60"))).await;
    assert_eq!(listed["keys"].as_array().unwrap().len(), 1);
    let query = [("scope", SCOPE), ("key", "stuck & <b>odd</b>")];
    let (status, key) = json_of(http.get(server.url("/console/api/key")).query(&query)).await;
    assert_eq!((status, &key, &key["leaseOver"]), (StatusCode::OK, &listed["keys"][0], &json!(true)));
    assert!(key["explanation"].as_str().unwrap().contains("may or may not have acted"), "{key}");
    assert_eq!(key["operationId"], held.operation_id);

    let action =
        json!({"complete": {"status": 201, "contentType": "application/json", "body": "{}", "resourceId": "o"}});
    let body = settle("stuck & <b>odd</b>", held.fencing_token, action);
    let post = || http.post(server.url("/console/api/resolve")).header("x-idem-console", "1");
    let (status, resolved) = json_of(post().json(&body)).await;
    assert_eq!((status, &resolved["state"], &resolved["status"]), (StatusCode::OK, &json!("completed"), &json!(201)));
    let (status, refused) = json_of(post().json(&body)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(refused["error"].as_str().unwrap().contains("never changes"), "{refused}");
    assert_eq!(
        finish(&client, Command::Complete, "stuck & <b>odd</b>", &held).await,
        "superseded by completed, with its answer"
    );
    server.stop().await;
}

#[tokio::test]
async fn no_stored_body_is_shown() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "k").await;
    finish(&client, Command::Complete, "k", &held).await;
    for path in ["/console/api/keys", "/console/api/key?scope=rest%2Fa&key=k"] {
        let text = reqwest::get(server.url(path)).await.unwrap().text().await.unwrap();
        assert!(text.contains("order-1") && !text.contains("2.50"), "{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn foreign_pages_can_neither_send_a_form_nor_read_through_a_name_of_theirs() {
    let server = Server::on_sqlite().await;
    let http = Client::new();
    let held = grant(&server.client(), "k").await;
    let body = settle("k", held.fencing_token, json!({"release": {}}));
    let url = server.url("/console/api/resolve");
    let (status, _) = json_of(http.post(&url).json(&body)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "without the header that a form cannot send");
    let plain = http.post(&url).header("x-idem-console", "1").body(body.to_string());
    assert_eq!(json_of(plain).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let rebound = http.get(server.url("/console/api/keys")).header("host", "attacker.example");
    assert_eq!(json_of(rebound).await.0, StatusCode::FORBIDDEN);
    assert_eq!(get(&server.client(), "k").await.unwrap().fencing_token, 1, "nothing was settled");
    server.stop().await;
}

#[tokio::test]
async fn with_tokens_the_api_asks_for_a_grant_of_the_matching_rpc() {
    let mut tokens = NamedTempFile::new().unwrap();
    tokens.write_all(TOKENS.as_bytes()).unwrap();
    let flag = format!("--service-tokens={}", tokens.path().display());
    let server = Server::start(sqlite_url(), &[&flag]).await;
    let mut reserve = tonic::Request::new(reserve_request("k"));
    reserve.metadata_mut().insert("authorization", "Bearer gateway".parse().unwrap());
    server.client().reserve(reserve).await.unwrap();
    let http = Client::new();
    let asked = |path: &str, token: &str| {
        let request = match path {
            "resolve" => {
                let body = settle("k", 1, json!({"release": {}}));
                http.post(server.url("/console/api/resolve")).header("x-idem-console", "1").json(&body)
            }
            path => http.get(server.url(&format!("/console/api/{path}"))),
        };
        if token.is_empty() { request } else { request.bearer_auth(token) }
    };
    let one = "key?scope=rest%2Fa&key=k";
    let table = [
        ("stats", "", 401),
        ("keys", "wrong", 401),
        (one, "", 401),
        ("resolve", "", 401),
        ("stats", "gateway", 403),
        ("keys", "gateway", 403),
        (one, "gateway", 403),
        ("resolve", "viewer", 403),
        (one, "elsewhere", 403),
        ("resolve", "elsewhere", 403),
        ("stats", "viewer", 200),
        ("keys", "viewer", 200),
        (one, "viewer", 200),
        ("resolve", "operator", 200),
    ];
    for (path, token, expected) in table {
        assert_eq!(json_of(asked(path, token)).await.0.as_u16(), expected, "{path} {token:?}");
    }
    let (_, listed) = json_of(asked("keys", "elsewhere")).await;
    assert_eq!(listed["keys"], json!([]), "another service's keys are not there");
    assert_eq!(reqwest::get(server.url("/")).await.unwrap().status(), StatusCode::OK, "the page itself has no secrets");
    server.stop().await;
}

#[tokio::test]
async fn exposed_without_authentication_only_the_api_is_closed() {
    let scratch = sqlite_url();
    let server = Server::try_start(config(&scratch, &["--admin-listen=0.0.0.0:0"])).await.unwrap();
    let port = server.admin.port();
    for (path, expected) in [("healthz", 200), ("metrics", 200), ("console", 200), ("console/api/keys", 403)] {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/{path}")).await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn bad_questions_are_answered_with_one_sentence() {
    let server = Server::on_sqlite().await;
    let http = Client::new();
    for (path, expected) in [
        ("keys?states=lost", 400),
        ("keys?pageSize=501", 400),
        ("keys?pageToken=xyz", 400),
        ("keys?unknown=1", 400),
        ("key?scope=rest%2Fa", 400),
        ("key?scope=rest%2Fa&key=absent", 404),
        ("nothing", 404),
    ] {
        let (status, body) = json_of(http.get(server.url(&format!("/console/api/{path}")))).await;
        assert_eq!(status.as_u16(), expected, "{path}");
        assert!(!body["error"].as_str().unwrap().is_empty(), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn outcomes_are_counted_by_command_and_keys_are_not_named() {
    // The recorder is installed by whoever comes first; here nobody else does.
    let _ = chassis::telemetry::render_metrics();
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "a-personal-key").await;
    finish(&client, Command::Complete, "a-personal-key", &held).await;
    client.clone().get(proto::GetRequest::default()).await.unwrap_err();
    let text = reqwest::get(server.url("/metrics")).await.unwrap().text().await.unwrap();
    for series in [
        r#"idem_outcomes_total{command="reserve",outcome="granted"}"#,
        r#"idem_outcomes_total{command="complete",outcome="completed"}"#,
        r#"idem_outcomes_total{command="get",outcome="invalid"}"#,
    ] {
        assert!(text.contains(series), "{series} is missing in {text}");
    }
    assert!(!text.contains("a-personal-key"));
    server.stop().await;
}
