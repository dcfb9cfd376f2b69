//! What a server notes about each request: the span's outcome, how long it took, and whether the client was still there. Each
//! request leaves one line in the log, target `access`, in its trace.

use http::Response;
use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::Instant;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// What whoever answers a request says of it, in the extensions of the response: it is put on the span of the server, and into the
/// line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The name of the attribute.
    pub attribute: &'static str,
    /// One of a few words.
    pub outcome: &'static str,
}

/// How an answer is named in spans and metrics.
pub trait Outcome {
    /// Notes the answer with these headers and status on `span`, counts it, and logs it.
    fn record<B>(&self, span: &Span, response: &Response<B>, seconds: f64);

    /// Counts and logs a request whose client went away before it was answered.
    fn record_gone(&self, seconds: f64);
}

pin_project! {
    /// The answer of a traced server.
    #[derive(Debug)]
    pub struct ResponseFuture<F, O: Outcome> {
        #[pin]
        inner: F,
        record: Record<O>,
    }
}

#[derive(Debug)]
struct Record<O: Outcome> {
    span: Span,
    started: Instant,
    outcome: O,
    answered: bool,
}

/// Puts what was noted of an answer on its span, and says what it was.
pub(super) fn noted<B>(span: &Span, response: &Response<B>) -> Option<&'static str> {
    let note = response.extensions().get::<Note>()?;
    span.set_attribute(note.attribute, note.outcome);
    Some(note.outcome)
}

// === impl ResponseFuture ===

impl<F, O: Outcome> ResponseFuture<F, O> {
    /// Watches `inner`, which runs in `span`.
    pub(super) fn new(inner: F, span: Span, outcome: O) -> Self {
        Self { inner, record: Record { span, started: Instant::now(), outcome, answered: false } }
    }
}

impl<F, O, B, E> Future for ResponseFuture<F, O>
where
    F: Future<Output = Result<Response<B>, E>>,
    O: Outcome,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.record.span.enter();
        let answer = ready!(this.inner.poll(cx));
        this.record.answered = true;
        if let Ok(response) = &answer {
            let seconds = this.record.started.elapsed().as_secs_f64();
            this.record.outcome.record(&this.record.span, response, seconds);
        }
        Poll::Ready(answer)
    }
}

// === impl Record ===

impl<O: Outcome> Drop for Record<O> {
    fn drop(&mut self) {
        if !self.answered {
            self.span.record("client.gone", true);
            let seconds = self.started.elapsed().as_secs_f64();
            self.span.in_scope(|| self.outcome.record_gone(seconds));
        }
    }
}
