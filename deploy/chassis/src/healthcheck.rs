//! A process asks another of its kind whether it is well: what an image without a shell or curl can run as its health check.

use crate::process::{BoxError, refuse};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Whoever runs health checks gives up soon; an answer that is late is as good as none.
const LIMIT: Duration = Duration::from_secs(3);
/// The longest answer that is repeated to the person who asked: a report of `/readyz` is far shorter.
const ANSWER_MAX: u64 = 4096;

/// Asks for `path` at the address where the process was told to listen, and exits with 0 when the answer is 200.
///
/// Any other answer, or none within three seconds, exits with 1 and one sentence on stderr. An address that stands for all
/// of this machine's is asked on loopback. Sends no telemetry: it is no process that anybody wants to watch.
pub fn run(service_name: &'static str, listen: SocketAddr, path: &'static str) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(service_name, &error, ExitCode::FAILURE),
    };
    match runtime.block_on(ask(reachable(listen), path, LIMIT)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(service_name, error.as_ref(), ExitCode::FAILURE),
    }
}

/// Where somebody on this machine reaches a process that listens on `listen`.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(addr: SocketAddr, path: &str, limit: Duration) -> Result<(), BoxError> {
    let answer = tokio::time::timeout(limit, get(addr, path)).await;
    let answer =
        answer.map_err(|_| format!("{addr}{path} did not answer within {}", humantime::format_duration(limit)))?;
    let answer = answer.map_err(|error| format!("{addr}{path} cannot be asked: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(format!("{addr}{path} says: {} {body}", head.lines().next().unwrap_or_default()).into()),
    }
}

/// The whole answer as text; HTTP/1.0, so that the server closes the connection and never sends chunks.
async fn get(addr: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{self, Readiness},
        listen, serve,
        shutdown::Shutdown,
        tasks::Tasks,
    };

    #[tokio::test]
    async fn a_process_that_is_not_ready_fails_the_check_and_says_why() {
        let readiness = Readiness::new();
        let listener = listen::bind("127.0.0.1:0".parse().unwrap(), "the admin pages", "--admin-listen").unwrap();
        let addr = listener.local_addr().unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let served = Tasks::new().spawn(
            "admin pages",
            serve::http(listener, admin::router(readiness.clone()), shutdown, Duration::from_secs(1)),
        );
        let refused = ask(addr, "/readyz", LIMIT).await.unwrap_err().to_string();
        assert!(refused.contains("503") && refused.contains("not serving"), "{refused}");
        assert!(ask(addr, "/healthz", LIMIT).await.is_ok(), "alive all the same");
        readiness.set(true);
        assert!(ask(addr, "/readyz", LIMIT).await.is_ok());
        trigger.begin();
        served.await.unwrap();
        let refused = ask(addr, "/readyz", LIMIT).await.unwrap_err().to_string();
        assert!(refused.contains("cannot be asked"), "{refused}");
    }

    #[tokio::test]
    async fn a_process_that_hangs_fails_the_check_in_time() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let limit = Duration::from_millis(50);
        let refused = ask(silent.local_addr().unwrap(), "/healthz", limit).await.unwrap_err().to_string();
        assert!(refused.contains("did not answer within 50ms"), "{refused}");
    }

    #[test]
    fn every_address_of_this_machine_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8081", "127.0.0.1:8081"),
            ("[::]:8081", "[::1]:8081"),
            ("127.0.0.1:8081", "127.0.0.1:8081"),
            ("10.1.2.3:8081", "10.1.2.3:8081"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
