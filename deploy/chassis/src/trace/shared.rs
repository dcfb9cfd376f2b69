//! Spans of work that is done for several callers at once, and what is noted on a span from further in.

use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::{Id, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The span among `aboard` in whose trace work for all of them belongs: the first that is recorded, else the first.
pub fn host_of<'s>(aboard: impl Iterator<Item = &'s Span> + Clone) -> Option<Id> {
    let recorded = aboard.clone().find(|span| context_of(span).is_sampled());
    recorded.or_else(|| aboard.clone().next()).and_then(Span::id)
}

/// Links `span`, of work that is done for all `aboard`, with each that is not its parent, in both directions: from whichever trace
/// somebody comes, the other is one step away.
pub fn connect<'s>(span: &Span, aboard: impl Iterator<Item = &'s Span>, host: Option<&Id>) {
    let own = context_of(span);
    if !own.is_sampled() {
        return;
    }
    for other in aboard.filter(|other| other.id().as_ref() != host) {
        let context = context_of(other);
        if context.is_sampled() {
            span.add_link(context);
            other.add_link(own.clone());
        }
    }
}

/// Notes something on the current span, if that is recorded. For attributes that its maker does not know; never for a secret.
pub fn note(attribute: &'static str, value: &impl ToString) {
    let span = Span::current();
    if context_of(&span).is_sampled() {
        span.set_attribute(attribute, value.to_string());
    }
}

fn context_of(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}
