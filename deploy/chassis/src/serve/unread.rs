//! A request body that nobody has read to its end.

use crate::tasks::Tasks;
use axum::BoxError;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// The most that is read of a body that nobody wants. What is larger is not worth it.
const DISCARD_MAX: u64 = 8 * 1024 * 1024;
/// How long that may take.
const DISCARD_LIMIT: Duration = Duration::from_secs(5);

/// A body whose rest is read and thrown away when it is dropped before its end.
///
/// A connection that is closed on bytes that were sent and not read is reset, and with it goes the answer that is on its way: a
/// client that was told 401 or 413 would see a broken connection, and try again for ever.
pub(super) struct ReadToItsEnd<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    body: Option<B>,
    is_left_alone: bool,
}

impl<B> ReadToItsEnd<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    /// Around the body of a request with this version and these headers.
    pub(super) fn new(body: B, version: Version, headers: &HeaderMap) -> Self {
        // HTTP/2 ends a stream by a frame of its own. And who waits for `100 Continue` has sent nothing yet: reading would ask for it.
        let is_left_alone = version >= Version::HTTP_2 || headers.contains_key(header::EXPECT);
        Self { body: Some(body), is_left_alone }
    }
}

impl<B> Body for ReadToItsEnd<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for ReadToItsEnd<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if self.is_left_alone || body.is_end_stream() || body.size_hint().lower() > DISCARD_MAX {
            return;
        }
        // The answer goes out meanwhile. It ends with the connection, if not before.
        Tasks::new().spawn("discard a request body", timeout(DISCARD_LIMIT, discard(body)));
    }
}

async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut left = DISCARD_MAX;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.remaining() as u64));
    }
}
