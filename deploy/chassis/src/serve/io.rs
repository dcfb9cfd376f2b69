//! Which protocol a client speaks, and how long it may take to say what it wants.

use super::in_flight::InFlight;
use credentials::ServerStream;
use std::{
    future::Future,
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

/// How long a client may take for the head of a request, and a new connection for its first bytes.
pub(super) const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// What an HTTP/2 client says first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes have been looked at.
pub(super) enum Sniffed {
    /// Anything that is not the HTTP/2 preface; HTTP itself judges it.
    Http1(Stream),
    Http2(Stream),
}

/// What bytes come over.
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<ServerStream<TcpStream>>),
}

/// A stream that gives its first bytes again, and on HTTP/1 watches the time that a request's head takes.
pub(super) struct Stream {
    wire: Wire,
    prefix: Prefix,
    head: HeadWatch,
}

struct Prefix {
    bytes: [u8; PREFACE.len()],
    given: usize,
    len: usize,
}

/// Ends a connection whose client has begun a head and does not finish it. An idle one is not its concern.
struct HeadWatch {
    /// Requests on this connection; a head is being read while there is none. None: not watched.
    in_flight: Option<InFlight>,
    head: Option<Head>,
    /// Made only when a head really comes in pieces, which is rare.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A head of which some bytes are here.
struct Head {
    since: Instant,
    /// The requests that had begun before it; when there are more, this head is complete.
    after: usize,
}

/// Reads until the protocol is certain. None when the client closes without a word.
pub(super) async fn sniff(mut wire: Wire, in_flight: &InFlight) -> io::Result<Option<Sniffed>> {
    let since = Instant::now();
    let mut prefix = Prefix { bytes: [0; PREFACE.len()], given: 0, len: 0 };
    while prefix.len < PREFACE.len() {
        let read = wire.read(&mut prefix.bytes[prefix.len..]).await?;
        prefix.len += read;
        if prefix.len == 0 {
            return Ok(None);
        }
        if read == 0 || prefix.bytes[..prefix.len] != PREFACE[..prefix.len] {
            let head = Some(Head { since, after: 0 });
            let head = HeadWatch { in_flight: Some(in_flight.clone()), head, timer: None };
            return Ok(Some(Sniffed::Http1(Stream { wire, prefix, head })));
        }
    }
    let head = HeadWatch { in_flight: None, head: None, timer: None };
    Ok(Some(Sniffed::Http2(Stream { wire, prefix, head })))
}

// === impl HeadWatch ===

impl HeadWatch {
    /// Notes that bytes came in.
    fn received(&mut self) {
        let Some(in_flight) = &self.in_flight else {
            return;
        };
        let after = in_flight.begun();
        // While a request is in flight they belong to its body.
        if in_flight.count() == 0 && self.head.as_ref().is_none_or(|head| head.after != after) {
            self.head = Some(Head { since: Instant::now(), after });
        }
    }

    /// Ready when a head that was begun is overdue. Otherwise the task is woken when it will be.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begun = self.in_flight.as_ref().map_or(0, InFlight::begun);
        let Some(head) = self.head.take_if(|head| head.after == begun) else {
            self.head = None;
            self.timer = None;
            return Poll::Pending;
        };
        let deadline = head.since + HEAD_LIMIT;
        self.head = Some(head);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx)
    }
}

// === impl Stream ===

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.prefix.bytes[this.prefix.given..this.prefix.len];
        if !left.is_empty() {
            let now = left.len().min(buf.remaining());
            buf.put_slice(&left[..now]);
            this.prefix.given += now;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut this.wire).poll_read(cx, buf) {
            if buf.filled().len() > before {
                this.head.received();
            }
            return Poll::Ready(result);
        }
        ready!(this.head.poll_overdue(cx));
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the head of the request took too long")))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

// === impl Wire ===

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }
}
