//! A whole process, seen from outside: exit codes, what it says, how it leaves, where its traces go.
//!
//! The process is this test binary, started again to run only [`child`].

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use chassis::{admin, listen, process, serve, shutdown, tasks::Tasks, trace};
use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, ChildStderr, Command, ExitCode, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

const DRAIN_DELAY: Duration = Duration::from_secs(2);

/// The process under test: `/` says its trace id, `/slow` answers when it is told to on stdin.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let listen = std::env::var("PROBE_LISTEN").expect("started by another test");
    let configure = move || listen.parse::<SocketAddr>().map_err(|error| format!("--listen {listen}: {error}"));
    let code = process::run("probe", configure, |addr| async move {
        let readiness = admin::Readiness::new();
        let shutdown = shutdown::on_signals(DRAIN_DELAY, readiness.clone());
        let listener = listen::bind(addr, "the probe", "--listen")?;
        let line = format!("serving on {}", listener.local_addr()?);
        let hello = || async {
            tracing::info!("hello");
            trace::current_trace_id()
        };
        let slow = || async {
            tracing::info!("slow request has arrived");
            let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
            read.await.expect("reading does not panic").expect("stdin is open");
            "slow"
        };
        let routes = axum::Router::new()
            .route("/", axum::routing::get(hello))
            .route("/slow", axum::routing::get(slow))
            .layer(trace::HttpServerLayer)
            .merge(admin::router(readiness.clone()));
        readiness.set(true);
        tracing::info!("{line}");
        let drained = serve::http(listener, routes, shutdown, Duration::from_secs(20)).await;
        if drained.in_time { Ok::<_, process::BoxError>(()) } else { Err("requests were cut".into()) }
    });
    // The test harness would turn any way of returning into its own code.
    std::process::exit(match code {
        ExitCode::SUCCESS => 0,
        ExitCode::FAILURE => 1,
        _ => 2,
    })
}

struct Probe {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Probe {
    fn start(listen: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env("PROBE_LISTEN", listen)
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// Reads the log up to the line with `text`.
    fn wait_for(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the process ended without saying {text:?}");
        }
        line
    }

    fn address(&mut self) -> String {
        let line = self.wait_for("serving on ");
        let (_, rest) = line.split_once("serving on ").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// The exit code and the rest of the log.
    fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code().expect("ended by itself"), rest)
    }
}

async fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn wrong_configuration_is_one_sentence_and_exit_code_2() {
    let (code, log) = Probe::start("nowhere", &[]).end();
    assert_eq!((code, log.trim()), (2, "probe: --listen nowhere: invalid socket address syntax"));
}

#[test]
fn busy_port_is_one_sentence_and_exit_code_1() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let (code, log) = Probe::start(&address, &[]).end();
    let expected = format!(
        "probe: cannot listen on {address} for the probe: another process already listens there; choose another address \
         with --listen"
    );
    assert_eq!((code, log.trim()), (1, expected.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_fails_readiness_at_once_serves_on_and_ends_with_0() {
    let mut probe = Probe::start("127.0.0.1:0", &[]);
    let address = probe.address();
    assert!(get(&address, "/readyz", "").await.starts_with("HTTP/1.1 200 OK"));
    let slow = {
        let address = address.clone();
        Tasks::new().spawn("slow request", async move { get(&address, "/slow", "").await })
    };
    probe.wait_for("slow request has arrived");
    probe.signal("-TERM");
    probe.wait_for("not ready any more");
    let readyz = get(&address, "/readyz", "").await;
    assert!(readyz.starts_with("HTTP/1.1 503") && readyz.contains("not serving"), "{readyz}");
    assert!(get(&address, "/", "").await.starts_with("HTTP/1.1 200 OK"));
    probe.wait_for("draining");
    std::io::Write::write_all(probe.child.stdin.as_mut().unwrap(), b"go on\n").unwrap();
    let answer = slow.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("slow"), "{answer}");
    assert_eq!(probe.end().0, 0);
}

#[tokio::test]
async fn second_signal_ends_at_once_with_its_number() {
    for (first, second, code) in [("-TERM", "-TERM", 143), ("-INT", "-INT", 130), ("-TERM", "-INT", 130)] {
        let mut probe = Probe::start("127.0.0.1:0", &[]);
        let mut stream = TcpStream::connect(probe.address()).await.unwrap();
        stream.write_all(b"GET /slow HTTP/1.1\r\nhost: probe\r\n\r\n").await.unwrap();
        probe.wait_for("slow request has arrived");
        probe.signal(first);
        probe.wait_for(if first == "-INT" { "draining" } else { "not ready any more" });
        probe.signal(second);
        assert_eq!(probe.end().0, code, "{first} {second}");
    }
}

#[tokio::test]
async fn log_lines_are_json_with_the_trace_id_of_their_request() {
    let mut probe = Probe::start("127.0.0.1:0", &[]);
    let address = probe.address();
    let traceparent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    assert!(get(&address, "/", traceparent).await.ends_with("4bf92f3577b34da6a3ce929d0e0e4736"));
    let line: serde_json::Value = serde_json::from_str(&probe.wait_for("hello")).unwrap();
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"hello".into()));
    probe.signal("-INT");
    assert_eq!(probe.end().0, 0);
}

/// Takes whatever is exported: path and body.
fn collector() -> (SocketAddr, shutdown::Trigger, mpsc::UnboundedReceiver<(String, Vec<u8>)>) {
    let (sender, received) = mpsc::unbounded_channel();
    let take = move |request: axum::extract::Request| {
        let sender = sender.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            sender.send((path, body.to_vec())).unwrap();
            [("content-type", "application/grpc"), ("grpc-status", "0")]
        }
    };
    let listener = listen::bind("127.0.0.1:0".parse().unwrap(), "the collector", "--listen").unwrap();
    let addr = listener.local_addr().unwrap();
    let (trigger, shutdown) = shutdown::Shutdown::new();
    let routes = axum::Router::new().fallback(take);
    drop(Tasks::new().spawn("collector", serve::http(listener, routes, shutdown, Duration::ZERO)));
    (addr, trigger, received)
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_exported_in_the_protocol_that_the_environment_names() {
    let table = [
        ("", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        ("grpc", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        ("http/protobuf", "/v1/traces"),
    ];
    for (protocol, expected) in table {
        let (addr, _trigger, mut received) = collector();
        let endpoint = format!("http://{addr}");
        let environment =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let mut probe = Probe::start("127.0.0.1:0", &environment);
        let address = probe.address();
        get(&address, "/", "").await;
        probe.signal("-INT");
        assert_eq!(probe.end().0, 0, "{protocol}");
        // Metrics come as well, before or after.
        let (path, body) = loop {
            let sent = received.recv().await.unwrap();
            if !sent.0.to_ascii_lowercase().contains("metrics") {
                break sent;
            }
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(path, expected, "{protocol}");
        assert!(body.contains("probe") && body.contains("GET /"), "{body}");
    }
}

#[tokio::test]
async fn a_dead_or_silent_collector_delays_no_request_and_no_end() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free_port::one().unwrap();
    for addr in [silent.local_addr().unwrap(), dead] {
        for protocol in ["grpc", "http/protobuf"] {
            let endpoint = format!("http://{addr}");
            let environment =
                [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
            let mut probe = Probe::start("127.0.0.1:0", &environment);
            let address = probe.address();
            let limit = Duration::from_secs(5);
            let requests = async {
                for _ in 0..100 {
                    assert!(get(&address, "/", "").await.starts_with("HTTP/1.1 200 OK"));
                }
            };
            tokio::time::timeout(limit, requests).await.expect("requests wait for the collector");
            probe.signal("-INT");
            let end = tokio::task::spawn_blocking(move || probe.end().0);
            let code = tokio::time::timeout(limit, end).await.expect("the end waits for the collector").unwrap();
            assert_eq!(code, 0, "{addr} {protocol}");
        }
    }
}
