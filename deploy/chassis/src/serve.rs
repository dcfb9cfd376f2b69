//! Serving HTTP and gRPC until the drain is over.
//!
//! One accept loop and one way to drain for both. On drain the listener closes, requests in flight are finished, HTTP/1
//! connections close after their answer and HTTP/2 ones are told GOAWAY; whatever is still open after the drain time (idle,
//! half-open and stalled peers, endless requests) is cut.

mod arriving;
mod connection;
mod foreign;
mod in_flight;
mod io;
mod message;
mod taken;
mod unread;

pub use message::MESSAGE_MAX;

use crate::{
    deadline::DeadlineLayer, service_auth::ServiceAuth, shutdown::Shutdown, tasks::Tasks, tls::ServerTls,
    trace::GrpcServerLayer,
};
use axum::{Router, middleware::from_fn};
use connection::{Connection, Protocol};
use in_flight::InFlight;
use std::{io::ErrorKind, net::SocketAddr, pin::pin, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tower::util::MapResponseLayer;

/// How long to pause when the process has no file descriptor left for another connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// What the kernel has taken in for us when the drain begins is still served: closing at once would reset clients that did
/// nothing wrong.
const ARRIVAL_GRACE: Duration = Duration::from_millis(100);

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Whether every request was answered; false when some were cut at the end of the drain time.
    pub in_time: bool,
}

/// In the extensions of a response: it is never sent, and the connection is closed instead (on HTTP/2, the stream is reset).
///
/// For a server that plays a broken one. The connection ends as it does after a fault of ours, so no byte of an answer was
/// written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("hung up instead of answering")]
pub struct HangUp;

/// Where connections come in, and whether they are encrypted.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
}

/// Serves `router` over HTTP/1 and HTTP/2 until `shutdown` drains, then for at most `drain`.
///
/// A client has 10 s to send the head of a request, of at most 32 KiB, or to get through the TLS handshake, 20 s for its body, and must
/// take something of an answer every 30 s.
pub async fn http(listener: impl Into<Listener>, router: Router, shutdown: Shutdown, drain: Duration) -> Drained {
    serve(listener.into(), router, Protocol::Public, shutdown, drain).await
}

/// Serves a router of gRPC services, made by [`grpc_router`], until `shutdown` drains, then for at most `drain`.
pub async fn grpc(listener: impl Into<Listener>, router: Router, shutdown: Shutdown, drain: Duration) -> Drained {
    serve(listener.into(), router, Protocol::Internal, shutdown, drain).await
}

/// Puts around gRPC services what each of ours has: a span per RPC, then authentication of the caller, then its deadline.
///
/// What is no gRPC at all is 415; a message that cannot be decoded is INVALID_ARGUMENT. `error_domain` is the domain of the
/// `ErrorInfo` in refusals.
pub fn grpc_router(routes: Routes, auth: &ServiceAuth, error_domain: &'static str) -> Router {
    routes
        .into_axum_router()
        .layer(MapResponseLayer::new(move |response| message::reword_undecodable(error_domain, response)))
        .layer(DeadlineLayer::new(error_domain))
        .layer(auth.layer(error_domain))
        .layer(GrpcServerLayer)
        .layer(from_fn(foreign::refuse_other_protocols))
}

async fn serve(listener: Listener, router: Router, protocol: Protocol, shutdown: Shutdown, drain: Duration) -> Drained {
    let Listener { tcp: listener, tls } = listener;
    let connections = Tasks::new();
    let cut = CancellationToken::new();
    let in_flight = InFlight::default();
    let spawn = |stream: TcpStream, peer: SocketAddr| {
        let connection = Connection {
            router: router.clone(),
            protocol,
            tls: tls.clone(),
            peer,
            shutdown: shutdown.clone(),
            in_flight: in_flight.clone(),
            cut: cut.clone(),
        };
        drop(connections.spawn("connection", connection.serve(stream)));
    };
    let arrivals_over = async {
        shutdown.draining().await;
        tokio::time::sleep(ARRIVAL_GRACE).await;
    };
    let mut arrivals_over = pin!(arrivals_over);
    loop {
        tokio::select! {
            biased;
            () = &mut arrivals_over => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => spawn(stream, peer),
                Err(error) => after_refused_accept(&error).await,
            },
        }
    }
    drop(listener);
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        let requests = in_flight.count();
        tracing::warn!(connections = connections.len(), requests, "drain time is over: cutting what is left");
        cut.cancel();
        connections.wait().await;
        return Drained { in_time: requests == 0 };
    }
    Drained { in_time: true }
}

// === impl Listener ===

impl Listener {
    /// Encrypted when there is a certificate to show, plaintext otherwise.
    pub fn new(tcp: TcpListener, tls: Option<ServerTls>) -> Self {
        Self { tcp, tls }
    }
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}

/// A connection that broke before we took it is nobody's trouble; no descriptors left is, and needs a moment.
async fn after_refused_accept(error: &std::io::Error) {
    if matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
    ) {
        return;
    }
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(EXHAUSTED).await;
}

#[cfg(test)]
mod tests;
