//! Which requests are not answered to their last byte.

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

/// Counts requests from their head to the end of the answer's body; every clone is the same count.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlight {
    count: Arc<AtomicUsize>,
}

/// One request that is in flight on a server and on its connection.
#[derive(Debug)]
pub(super) struct Ticket {
    server: InFlight,
    connection: InFlight,
}

/// The body of an answer, in flight until it is dropped.
pub(super) struct TrackedBody {
    inner: Body,
    _ticket: Ticket,
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(server: &InFlight, connection: &InFlight) -> Self {
        server.add();
        connection.add();
        Self { server: server.clone(), connection: connection.clone() }
    }

    pub(super) fn track(self, inner: Body) -> TrackedBody {
        TrackedBody { inner, _ticket: self }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.server.remove();
        self.connection.remove();
    }
}

// === impl TrackedBody ===

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
