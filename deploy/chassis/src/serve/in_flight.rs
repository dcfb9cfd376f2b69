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
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
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
    /// How many requests are in flight now.
    pub(super) fn count(&self) -> usize {
        let ended = self.counts.ended.load(Ordering::Acquire);
        self.begun().saturating_sub(ended)
    }

    /// How many requests have begun since the start.
    pub(super) fn begun(&self) -> usize {
        self.counts.begun.load(Ordering::Acquire)
    }

    fn begin(&self) {
        self.counts.begun.fetch_add(1, Ordering::AcqRel);
    }

    fn end(&self) {
        self.counts.ended.fetch_add(1, Ordering::AcqRel);
    }
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(server: &InFlight, connection: &InFlight) -> Self {
        server.begin();
        connection.begin();
        Self { server: server.clone(), connection: connection.clone() }
    }

    pub(super) fn track(self, inner: Body) -> TrackedBody {
        TrackedBody { inner, _ticket: self }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.server.end();
        self.connection.end();
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
