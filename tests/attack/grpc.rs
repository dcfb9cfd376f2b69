//! The idempotency service as a stranger on its network meets it: a real process that knows its callers.

use std::net::SocketAddr;

use bytes::Bytes;
use e2e::{Process, eventually, free_address};
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use idem_proto::idem::v1::{
    GetRequest, ListRequest, ReserveRequest, admin_service_client::AdminServiceClient,
    idempotency_service_client::IdempotencyServiceClient,
};
use serde_json::json;
use tonic::{Code, Status, transport::Channel};
use tower::{Service as _, ServiceExt as _};

const TOKEN: &str = "st_rest_planted";
const OTHER: &str = "st_other_planted";

struct Service {
    _process: Process,
    _files: tempfile::TempDir,
    at: SocketAddr,
    channel: Channel,
}

impl Service {
    async fn start(flags: &[&str]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let tokens = json!([
            {"service": "gateway", "token": TOKEN, "scopes": ["rest/*"], "rpcs": ["idem.v1.IdempotencyService/*"]},
            {"service": "other", "token": OTHER, "scopes": ["other/*"], "rpcs": ["idem.v1.IdempotencyService/*"]},
        ]);
        let tokens_file = files.path().join("tokens.json");
        std::fs::write(&tokens_file, tokens.to_string()).unwrap();
        let (at, admin) = (free_address(), free_address());
        let store = format!("sqlite:{}", files.path().join("idem.db").display());
        let mut arguments = vec!["--listen".to_owned(), at.to_string(), "--admin-listen".to_owned(), admin.to_string()];
        arguments.extend([
            "--store".to_owned(),
            store,
            "--service-tokens".to_owned(),
            tokens_file.display().to_string(),
        ]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let process = Process::start("idem-service", &arguments);
        eventually("the service is ready", || async {
            reqwest::get(format!("http://{admin}/readyz")).await.ok().filter(|answer| answer.status().is_success())
        })
        .await;
        let channel = Channel::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
        Self { _process: process, _files: files, at, channel }
    }

    async fn reserve(&self, token: &str, scope: &str, key: &str) -> Result<(), Status> {
        let message = ReserveRequest {
            scope: scope.into(),
            key: key.into(),
            fingerprint: vec![7; 32].into(),
            attempt_id: uuid::Uuid::new_v4().to_string(),
            ..ReserveRequest::default()
        };
        let mut client = IdempotencyServiceClient::new(self.channel.clone());
        client.reserve(authorized(message, token)).await.map(drop)
    }

    async fn get(&self, token: &str, scope: &str, key: &str) -> Code {
        let mut client = IdempotencyServiceClient::new(self.channel.clone());
        let message = GetRequest { scope: scope.into(), key: key.into() };
        client.get(authorized(message, token)).await.map_or_else(|status| status.code(), |_| Code::Ok)
    }

    /// Sends bytes as they are.
    async fn raw(&self, path: &str, body: Bytes, encoding: Option<&str>) -> Response<Bytes> {
        self.raw_as("application/grpc", path, body, encoding).await
    }

    async fn raw_as(&self, content_type: &str, path: &str, body: Bytes, encoding: Option<&str>) -> Response<Bytes> {
        let request = Request::post(format!("http://{}{path}", self.at))
            .version(http::Version::HTTP_2)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"))
            .header("te", "trailers");
        let request = encoding.into_iter().fold(request, |request, it| request.header("grpc-encoding", it));
        let mut channel = self.channel.clone();
        let request = request.body(tonic::body::Body::new(Full::new(body))).unwrap();
        let answer = channel.ready().await.unwrap().call(request).await.unwrap();
        let (mut parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap();
        if let Some(trailers) = body.trailers() {
            parts.headers.extend(trailers.clone());
        }
        Response::from_parts(parts, body.to_bytes())
    }
}

fn authorized<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn code(answer: &Response<Bytes>) -> Code {
    Code::from_bytes(answer.headers()["grpc-status"].as_bytes())
}

/// A frame: is it compressed, how long does it say it is, and what comes.
fn frame(flag: u8, length: u32, message: &[u8]) -> Bytes {
    [&[flag][..], &length.to_be_bytes(), message].concat().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_cannot_be_guessed_and_open_no_other_scope_and_no_other_service() {
    let service = Service::start(&[]).await;
    service.reserve(TOKEN, "rest/a", "k").await.unwrap();
    service.reserve(OTHER, "other/x", "k").await.unwrap();
    let mut told = std::collections::BTreeSet::new();
    for n in 0..500 {
        let guess = if n % 2 == 0 { format!("{TOKEN}{n}") } else { format!("st_{n:032}") };
        let refused = service.reserve(&guess, "rest/a", "k").await.unwrap_err();
        told.insert((refused.code() as i32, refused.message().to_owned()));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told.first().unwrap().0, Code::Unauthenticated as i32);
    assert_eq!(service.reserve("", "rest/a", "k").await.unwrap_err().code(), Code::Unauthenticated);
    // Another service's scope, there or not; and no wildcard, prefix or other spelling of it.
    for scope in ["rest/a", "rest/nobody", "rest/", "rest/*", "*", "other", "otherx/y", "Other/x"] {
        let refused = service.reserve(OTHER, scope, "k").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{scope}");
        assert_eq!(service.get(OTHER, scope, "k").await, Code::PermissionDenied, "{scope}");
    }
    // Settling by hand is another grant.
    let mut admin = AdminServiceClient::new(service.channel.clone());
    for token in [TOKEN, OTHER] {
        let refused = admin.list(authorized(ListRequest::default(), token)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    assert_eq!(service.get(TOKEN, "rest/a", "k").await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_bombs_are_refused_and_the_connection_serves_on() {
    let service = Service::start(&[]).await;
    const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";
    let five_megabytes = vec![b'x'; 5 * 1024 * 1024];
    // A group in a group in a group: field 1, wire type 3.
    let deep = [0x0b; 200];
    let bombs = [
        (frame(0, u32::MAX, b""), None),
        (frame(0, five_megabytes.len() as u32, &five_megabytes), None),
        (frame(0, 3, b"\x0a\xff\x7f"), None),
        (frame(0, deep.len() as u32, &deep), None),
        (frame(1, 20, b"\x1f\x8b_________________"), Some("gzip")),
        (frame(1, 5, b"hello"), None),
        (frame(7, 5, b"hello"), None),
    ];
    for (bomb, encoding) in bombs {
        let answer = service.raw(RESERVE, bomb.clone(), encoding).await;
        let refused = code(&answer);
        let expected = [Code::InvalidArgument, Code::Unimplemented, Code::Internal, Code::OutOfRange];
        assert!(expected.contains(&refused), "{refused:?} to {:?}", &bomb[..bomb.len().min(16)]);
        service.reserve(TOKEN, "rest/a", "beside").await.unwrap();
    }
    // Fields that are out of bounds, in a message that is not.
    let long = "x".repeat(2 * 1024 * 1024);
    assert_eq!(service.reserve(TOKEN, "rest/a", &long).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(service.reserve(TOKEN, &format!("rest/{long}"), "k").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_can_be_off_and_what_is_no_grpc_does_not_come_in() {
    let service = Service::start(&["--reflection", "false"]).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let answer = service.raw(&path, frame(0, 2, b"\x3a\x00"), None).await;
        // Not there, or not for this caller: either way nothing is described.
        assert!([Code::Unimplemented, Code::PermissionDenied].contains(&code(&answer)), "{:?}", code(&answer));
        assert!(answer.body().is_empty());
    }
    // What a page elsewhere can make a browser send.
    let posted = service.raw_as("text/plain", "/idem.v1.IdempotencyService/Reserve", frame(0, 0, b""), None).await;
    assert_eq!(posted.status(), 415);
    service.reserve(TOKEN, "rest/a", "k").await.unwrap();
}
