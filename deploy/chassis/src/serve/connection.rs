//! One connection, from its first byte to its last.

use super::{
    ARRIVAL_GRACE, HangUp,
    arriving::{ARRIVAL_LIMIT, Arriving},
    in_flight::{InFlight, Ticket, TrackedBody},
    io::{HEAD_LIMIT, Sniffed, Stream, Wire, sniff},
    taken::Taken,
    unread::ReadToItsEnd,
};
use crate::{
    shutdown::Shutdown,
    tls::{PeerNames, ServerTls},
};
use axum::{Router, extract::ConnectInfo};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use std::{io, net::SocketAddr, pin::pin, sync::OnceLock, time::Duration};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// How long an HTTP/1 connection may stay without a request: longer than the minute for which balancers keep theirs, so
/// that they close first and no request meets a closing connection.
const IDLE_LIMIT: Duration = Duration::from_secs(75);

/// How often an HTTP/2 peer is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// The largest head of a request: a key, an API key and a trace are a few hundred bytes, and cookies of a browser some thousands.
/// What is larger is answered with 431.
const HEAD_MAX: usize = 32 * 1024;
/// As many header lines as that.
const HEADERS_MAX: usize = 100;

/// Enough for a stored response of 1 MiB to arrive without waiting for a window.
const WINDOW: u32 = 2 * 1024 * 1024;

/// Who is on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Anybody.
    Public,
    /// Our own services, which put many calls on one connection.
    Internal,
}

pub(super) struct Connection {
    pub(super) router: Router,
    pub(super) protocol: Protocol,
    /// None: plaintext.
    pub(super) tls: Option<ServerTls>,
    pub(super) peer: SocketAddr,
    pub(super) shutdown: Shutdown,
    /// Requests of the whole server.
    pub(super) in_flight: InFlight,
    /// Cancelled when the drain time is over.
    pub(super) cut: CancellationToken,
}

impl Connection {
    pub(super) async fn serve(self, tcp: TcpStream) {
        // Answers are written whole; waiting for more to send would only delay them.
        let _ = tcp.set_nodelay(true);
        let here = InFlight::default();
        let arrival_over = async {
            self.shutdown.draining().await;
            tokio::time::sleep(ARRIVAL_GRACE).await;
        };
        // Written once, when the handshake is over; without TLS never.
        let names = OnceLock::new();
        let opened = async { sniff(self.handshake(tcp, &names).await?, &here).await };
        let sniffed = tokio::select! {
            biased;
            sniffed = tokio::time::timeout(HEAD_LIMIT, opened) => sniffed,
            () = arrival_over => return,
            () = self.cut.cancelled() => return,
        };
        match sniffed {
            Ok(Ok(Some(Sniffed::Http1(stream)))) => self.serve_http1(stream, here, names.into_inner()).await,
            Ok(Ok(Some(Sniffed::Http2(stream)))) => self.serve_http2(stream, here, names.into_inner()).await,
            // The client left, or never said a word.
            Ok(Ok(None) | Err(_)) | Err(_) => {}
        }
    }

    /// What a client says in plain text, after the TLS handshake if there is one.
    async fn handshake(&self, tcp: TcpStream, names: &OnceLock<PeerNames>) -> io::Result<Wire> {
        let Some(tls) = &self.tls else { return Ok(Wire::Plain(tcp)) };
        let (stream, peer) = tls.accept(tcp).await.inspect_err(|error| {
            // Anybody can cause it, so it is no warning; who is refused for a certificate wants to find it.
            tracing::info!(peer = %self.peer, %error, "a TLS handshake failed");
        })?;
        if let Some(peer) = peer {
            let _ = names.set(peer);
        }
        Ok(Wire::Tls(Box::new(stream)))
    }

    async fn serve_http1(&self, stream: Stream, here: InFlight, names: Option<PeerNames>) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_LIMIT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_MAX)
            .serve_connection(
                TokioIo::new(Taken::new(stream)),
                service_fn(|request| self.answer(request, &here, names.as_ref())),
            );
        self.run(connection).await;
    }

    async fn serve_http2(&self, stream: Stream, here: InFlight, names: Option<PeerNames>) {
        let streams = match self.protocol {
            Protocol::Public => 256,
            Protocol::Internal => 4096,
        };
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        if let Protocol::Internal = self.protocol {
            // After a stall, callers cancel by the dozen what their deadlines have overtaken. That is no rapid-reset attack, and
            // ending the connection for it would take the innocent calls behind them along.
            http2.max_pending_accept_reset_streams(Some(streams as usize));
            http2.max_local_error_reset_streams(Some(streams as usize));
        }
        let connection = http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .max_concurrent_streams(streams)
            .max_header_list_size(HEAD_MAX as u32)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .serve_connection(
                TokioIo::new(Taken::new(stream)),
                service_fn(|request| self.answer(request, &here, names.as_ref())),
            );
        self.run(connection).await;
    }

    /// Runs a connection until it ends by itself, or gracefully after the drain began, or is cut.
    async fn run(&self, connection: impl GracefulConnection) {
        let mut connection = pin!(connection);
        // The connection is polled first, so that a request which has arrived is taken before the drain looks for idleness.
        tokio::select! {
            biased;
            // Errors are the client's: it went away or spoke nonsense, and was told so where that is possible.
            _ = &mut connection => return,
            () = self.shutdown.draining() => connection.as_mut().graceful_shutdown(),
            () = self.cut.cancelled() => return,
        }
        tokio::select! {
            biased;
            _ = &mut connection => {}
            () = self.cut.cancelled() => {}
        }
    }

    fn answer(
        &self,
        mut request: Request<Incoming>,
        here: &InFlight,
        names: Option<&PeerNames>,
    ) -> impl Future<Output = Result<Response<TrackedBody>, HangUp>> + use<> {
        let ticket = Ticket::new(&self.in_flight, here);
        let version = request.version();
        request.extensions_mut().insert(ConnectInfo(self.peer));
        if let Some(names) = names {
            request.extensions_mut().insert(names.clone());
        }
        // Our own services stream as they like; their calls bring deadlines.
        let limit = (self.protocol == Protocol::Public).then_some(ARRIVAL_LIMIT);
        let (head, body) = request.into_parts();
        let body = Arriving::within(limit, ReadToItsEnd::new(body, version, &head.headers));
        let answer = self.router.clone().call(Request::from_parts(head, body));
        let shutdown = self.shutdown.clone();
        async move {
            let mut response = answer.await.unwrap_or_else(|never| match never {});
            if let Some(hang_up) = response.extensions().get::<HangUp>() {
                return Err(*hang_up);
            }
            // After a body that never came, its rest would be taken for the next request.
            let is_over = shutdown.is_leaving() || response.status() == StatusCode::REQUEST_TIMEOUT;
            if version < Version::HTTP_2 && is_over {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| ticket.track(body)))
        }
    }
}
