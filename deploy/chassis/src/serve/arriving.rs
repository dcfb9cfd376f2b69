//! A request body that must arrive in time.

use axum::BoxError;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// How long a body from anybody may take. A client that stalls holds a connection, and at the end of the process the drain, for
/// no longer than this; a quarter of a megabyte arrives in time over the slowest of mobile networks.
pub(super) const ARRIVAL_LIMIT: Duration = Duration::from_secs(20);

/// It did not arrive in time: an I/O error, so that whoever reads a body needs to know nothing of this server to tell.
fn too_slow() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("the request body did not arrive within {ARRIVAL_LIMIT:?}"))
}

pin_project! {
    /// A body with a deadline; without one it is passed through.
    pub(super) struct Arriving<B> {
        #[pin]
        body: B,
        #[pin]
        limit: Option<Sleep>,
    }
}

impl<B> Arriving<B> {
    pub(super) fn within(limit: Option<Duration>, body: B) -> Self {
        Self { body, limit: limit.map(sleep) }
    }
}

impl<B> Body for Arriving<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if let Poll::Ready(frame) = this.body.poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match this.limit.as_pin_mut().map(|limit| limit.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Some(Err(too_slow().into()))),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full, StreamBody};

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_ends_at_its_limit() {
        let stalled = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
        let error = Arriving::within(Some(ARRIVAL_LIMIT), stalled).collect().await.err().unwrap();
        assert!(error.to_string().contains("did not arrive"), "{error}");
        assert_eq!(error.downcast::<io::Error>().unwrap().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_there_passes() {
        let body = Arriving::within(Some(ARRIVAL_LIMIT), Full::new(Bytes::from_static(b"{}")));
        tokio::time::advance(2 * ARRIVAL_LIMIT).await;
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{}");
    }
}
