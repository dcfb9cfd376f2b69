//! Whether a call has left this process: the difference between "nothing happened" and "unknown".
//!
//! A unary gRPC call acts only when its message has arrived. So the message's body is watched: until the transport takes it,
//! the call can be stopped for good (no connection, a connection that stays silent, a queue that is too long), and nothing
//! has happened at the other side. Once it was taken, only an answer or a look-up tells.

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};
use tonic::{Status, body::Body};
use tower::Service;

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const STOPPED: u8 = 2;

/// One call's gate, in the extensions of its request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    state: Arc<AtomicU8>,
}

/// Watches the messages that go into a channel. Calls without a [`Gate`] pass.
#[derive(Clone, Debug)]
pub(crate) struct Gated<S> {
    inner: S,
}

/// A message that goes through its gate when the transport asks for it.
struct GatedBody {
    inner: Body,
    gate: Gate,
}

// === impl Gate ===

impl Gate {
    /// Keeps the message from leaving from now on. False when it has left already.
    pub(crate) fn stop(&self) -> bool {
        match self.state.compare_exchange(WAITING, STOPPED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == STOPPED,
        }
    }

    /// Lets the message out. False when it was stopped.
    pub(super) fn pass(&self) -> bool {
        match self.state.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == TAKEN,
        }
    }
}

// === impl Gated ===

impl<S> Gated<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let request = match request.extensions().get::<Gate>().cloned() {
            Some(gate) => request.map(|inner| Body::new(GatedBody { inner, gate })),
            None => request,
        };
        self.inner.call(request)
    }
}

// === impl GatedBody ===

impl HttpBody for GatedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if !self.gate.pass() {
            return Poll::Ready(Some(Err(Status::cancelled("stopped before the message was sent"))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    // Never true: an empty message too must be asked for.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    fn gated(gate: &Gate) -> GatedBody {
        GatedBody { inner: Body::new(http_body_util::Full::new(Bytes::from_static(b"message"))), gate: gate.clone() }
    }

    #[tokio::test]
    async fn a_message_that_was_taken_cannot_be_stopped() {
        let gate = Gate::default();
        assert_eq!(gated(&gate).collect().await.unwrap().to_bytes(), "message");
        assert!(!gate.stop());
    }

    #[tokio::test]
    async fn a_stopped_message_never_leaves() {
        let gate = Gate::default();
        assert!(gate.stop() && gate.stop());
        assert!(gated(&gate).collect().await.is_err());
    }
}
