//! From start to end: deadlines, health, reflection, refusals to start, and the drain.

use std::io::{BufRead, BufReader};
use std::process::{Command as Process, Output, Stdio};
use std::time::Duration;

use database::testing::sqlite_url;
use futures::StreamExt;
use idem_proto::idem::v1 as proto;
use tonic::{Code, Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::calls::{Command, Outcome as Reserved, finish, get, grant, reason, reserve_request, seconds, send};
use crate::raw::RawCall;
use crate::server::{Server, config};

/// Watches the health of a service until it has `status`.
pub async fn until_health(server: &Server, service: &str, status: ServingStatus) {
    let request = HealthCheckRequest { service: service.to_owned() };
    let mut reports = HealthClient::new(server.channel()).watch(request).await.unwrap().into_inner();
    let seen = async {
        while let Some(Ok(HealthCheckResponse { status: now })) = reports.next().await {
            if now == i32::from(status) {
                return;
            }
        }
        panic!("the watch ended before {service:?} was {status:?}");
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("health follows within seconds");
}

async fn reserve_with_timeout(server: &Server, timeout: &str) -> Option<Status> {
    RawCall::new("/idem.v1.IdempotencyService/Reserve", &reserve_request("k")).send(server, timeout).await
}

#[tokio::test]
async fn call_past_its_deadline_does_nothing() {
    let server = Server::on_sqlite().await;
    let refused = reserve_with_timeout(&server, "0n").await.expect("it is refused");
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::DeadlineExceeded, "DEADLINE"));
    assert_eq!(get(&server.client(), "k").await.unwrap_err().code(), Code::NotFound);
    assert!(reserve_with_timeout(&server, "10S").await.is_none());
    assert_eq!(get(&server.client(), "k").await.unwrap().state(), proto::State::InProgress);
    server.stop().await;
}

#[tokio::test]
async fn waiting_call_answers_before_its_deadline() {
    let server = Server::on_sqlite().await;
    grant(&server.client(), "k").await;
    let mut waiting = Request::new(proto::ReserveRequest { wait: seconds(30), ..reserve_request("k") });
    waiting.set_timeout(Duration::from_secs(1));
    let outcome = server.client().reserve(waiting).await.unwrap().into_inner().outcome.unwrap();
    assert!(matches!(outcome, Reserved::InProgress(_)), "{outcome:?}");
    server.stop().await;
}

#[tokio::test]
async fn every_service_reports_its_health_and_an_unknown_one_is_not_found() {
    let server = Server::on_sqlite().await;
    for service in ["", "idem.v1.IdempotencyService", "idem.v1.AdminService"] {
        until_health(&server, service, ServingStatus::Serving).await;
    }
    let unknown = HealthCheckRequest { service: "idem.v1.Unknown".to_owned() };
    let refused = HealthClient::new(server.channel()).check(unknown).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn reflection_lists_what_is_served() {
    let server = Server::on_sqlite().await;
    let ask = |message_request| ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("idem.v1.IdempotencyService".to_owned())),
    ];
    let mut client = ServerReflectionClient::new(server.channel());
    let answers = client.server_reflection_info(futures::stream::iter(asked)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let [MessageResponse::ListServicesResponse(services), MessageResponse::FileDescriptorResponse(_)] =
        answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["idem.v1.IdempotencyService", "idem.v1.AdminService", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"orders.v1.OrdersService"), "{names:?}");
    server.stop().await;
}

#[tokio::test]
async fn call_in_flight_is_answered_and_health_says_not_serving_during_the_drain() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    let held = grant(&client, "k").await;
    let waiting = proto::ReserveRequest { wait: seconds(30), ..reserve_request("k") };
    let drained = async {
        until_health(&server, "", ServingStatus::Serving).await;
        server.trigger.leave();
        until_health(&server, "", ServingStatus::NotServing).await;
        // Announced, but still served.
        finish(&client, Command::Renew, "k", &held).await;
        server.trigger.begin();
        finish(&client, Command::Complete, "k", &held).await
    };
    let (heard, completed) = tokio::join!(send(&client, waiting), drained);
    assert!(matches!(heard, Reserved::Replay(_)), "{heard:?}");
    assert_eq!(completed, "completed");
    drop(client);
    server.stop().await;
}

async fn refusal_to_start(flags: &[&str]) -> String {
    let scratch = sqlite_url();
    match Server::try_start(config(&scratch, flags)).await {
        Ok(_) => panic!("it started with {flags:?}"),
        Err(error) => chassis::process::sentence(&error),
    }
}

#[tokio::test]
async fn wrong_configuration_is_one_sentence_before_anything_is_served() {
    let busy = Server::on_sqlite().await;
    let taken = format!("--listen={}", busy.grpc);
    let taken_admin = format!("--admin-listen={}", busy.admin);
    let table = [
        (taken.as_str(), "choose another address with --listen"),
        (taken_admin.as_str(), "choose another address with --admin-listen"),
        ("--listen=0.0.0.0:0", "without authentication"),
        ("--service-tokens=does/not/exist.json", "cannot read the service tokens"),
    ];
    for (flag, expected) in table {
        let sentence = refusal_to_start(&[flag]).await;
        assert!(sentence.contains(expected), "{flag}: {sentence}");
    }
    let scratch = busy.stop().await.unwrap();
    let first = Server::start(scratch, &[]).await;
    let same = config(first.scratch.as_ref().unwrap(), &[]);
    let sentence = chassis::process::sentence(&Server::try_start(same).await.err().expect("the file is taken"));
    assert!(sentence.contains("in use by another process"), "{sentence}");
    first.stop().await;
}

#[tokio::test]
async fn unreachable_postgres_is_one_sentence_before_anything_is_served() {
    let free = free_port::one().unwrap();
    let url = format!("postgres://idem:secret@{free}/idem").parse().unwrap();
    let refused = Server::try_start(config(&url, &[])).await.err().expect("there is no database");
    let sentence = chassis::process::sentence(&refused);
    assert!(sentence.contains("cannot be reached") && !sentence.contains("secret"), "{sentence}");
}

/// The binary itself, with an empty environment.
fn process(args: &[&str]) -> Process {
    let mut process = Process::new(env!("CARGO_BIN_EXE_idem-service"));
    process.env_clear().args(args);
    process
}

fn text(output: &Output) -> (Option<i32>, String) {
    let out = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8(out).unwrap())
}

#[test]
fn process_refuses_nonsense_in_one_sentence_and_migrates_and_prints_its_configuration() {
    let scratch = sqlite_url();
    let store = scratch.to_string();
    let table: [(&[&str], i32, &str); 10] = [
        (&["--store=mysql://x"], 2, "a store is sqlite:PATH or postgres://"),
        (&["--frobnicate=x"], 2, "unexpected argument"),
        (&["--tls-cert=x"], 2, "idem-service: --tls-cert is given without --tls-key: give both, or neither"),
        (&["--listen=0.0.0.0:7001"], 2, "idem-service: refusing to listen on 0.0.0.0:7001 without authentication"),
        (&["--service-tokens=absent.json"], 2, "idem-service: cannot read the service tokens in absent.json"),
        (&["--listen=192.0.2.1:7001", "--insecure"], 1, "idem-service: cannot listen on 192.0.2.1:7001 for gRPC"),
        (&["migrate", "--store", &store], 0, "the schema of idem-service is now at"),
        (&["migrate", "--store", &store], 0, "the schema of idem-service is already at"),
        (&["print-config", "--drain=5s"], 0, "IDEM_DRAIN=5s"),
        (&["--listen=127.0.0.1:0", "migrate", "--store", &store], 2, "cannot be used with"),
    ];
    for (args, code, sentence) in table {
        let (exit, out) = text(&process(args).output().unwrap());
        assert_eq!(exit, Some(code), "{args:?}: {out}");
        assert!(out.contains(sentence), "{args:?}: {out}");
    }
    let environment = [("IDEM_INSECURE", "1"), ("IDEM_LISTEN", "0.0.0.0:1"), ("IDEM_DRAIN_DELAY", "2s")];
    let (exit, out) = text(&process(&["print-config"]).envs(environment).output().unwrap());
    assert_eq!(exit, Some(0), "{out}");
    for line in ["IDEM_INSECURE=true", "IDEM_LISTEN=0.0.0.0:1", "IDEM_DRAIN_DELAY=2s"] {
        assert!(out.lines().any(|printed| printed == line), "{line} is missing in {out}");
    }
}

#[test]
fn process_serves_until_sigterm_and_exits_with_zero() {
    let scratch = sqlite_url();
    let store = format!("--store={}", *scratch);
    let args = ["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--drain-delay=0s", &store];
    let mut child = process(&args).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let serving = log.lines().map(Result::unwrap).find(|line| line.contains("\"serving\"")).expect("it serves");
    assert!(serving.contains("\"grpc\":\"127.0.0.1:"), "{serving}");
    assert!(Process::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
