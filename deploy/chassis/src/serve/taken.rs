//! A connection whose peer must take what is written to it.

use std::{
    future::Future,
    io::{self, ErrorKind, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// How long nothing at all may be taken of what is written. A peer that reads slowly is served; one that does not read holds its
/// connection, and the answer, for no longer than this.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Passes everything through, and ends a connection on which a write makes no progress.
pub(super) struct Taken<S> {
    stream: S,
    /// Runs while a write waits. Made only when one has to, which is rare.
    stalled: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

// === impl Taken ===

impl<S> Taken<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, stalled: None, is_waiting: false }
    }

    /// What a write has come to: its own word, or an error when it has waited for too long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_LIMIT)));
        if !self.is_waiting {
            stalled.as_mut().reset(Instant::now() + STALL_LIMIT);
            self.is_waiting = true;
        }
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the peer takes nothing of the answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, closed)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_left_and_who_takes_slowly_is_served() {
        let (ours, mut theirs) = duplex(16);
        let mut ours = Taken::new(ours);
        let begun = Instant::now();
        let answer = [7; 64];
        let reading = async {
            // A little each time, just in time.
            for _ in 0..4 {
                tokio::time::sleep(STALL_LIMIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut [0; 16]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&answer), reading);
        written.unwrap();
        assert!(begun.elapsed() > 2 * STALL_LIMIT);

        let begun = Instant::now();
        let error = ours.write_all(&answer).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), STALL_LIMIT);
    }
}
