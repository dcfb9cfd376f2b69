//! Reading, writing and linking trace contexts.

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

pub(super) const TRACEPARENT: &str = "traceparent";
pub(super) const TRACESTATE: &str = "tracestate";

/// The context that a caller sent, to be the parent of a span.
#[derive(Debug, Clone)]
pub struct Parent(SpanContext);

/// The trace id of the current span, 32 hexadecimal digits. Outside any span it is a fresh one, so that an error always has
/// an id to be quoted by.
pub fn current_trace_id() -> String {
    match Context::map_current(|context| context.span().span_context().trace_id()) {
        TraceId::INVALID => RandomIdGenerator::default().new_trace_id().to_string(),
        trace_id => trace_id.to_string(),
    }
}

/// The current span as a `traceparent`, to be stored or sent; None outside any span.
pub fn current_traceparent() -> Option<String> {
    Context::map_current(|context| write_traceparent(context.span().span_context()))
}

/// Links the current span to another trace, given as a `traceparent` that was stored. Ignores one that is malformed.
pub fn link_to(traceparent: &str) {
    if let Some(linked) = parse_traceparent(traceparent) {
        Context::map_current(|context| context.span().add_link(linked, Vec::new()));
    }
}

/// Writes the current context into the headers of a request that is about to be sent.
pub fn inject(headers: &mut HeaderMap) {
    Context::map_current(|context| {
        let span = context.span();
        if let Some(traceparent) = write_traceparent(span.span_context()) {
            let value = HeaderValue::try_from(traceparent).expect("hexadecimal digits and dashes");
            headers.insert(TRACEPARENT, value);
            if let Some(state) = write_tracestate(span.span_context()) {
                headers.insert(TRACESTATE, state);
            }
        }
    });
}

/// Makes the context in `headers` the parent of `span`. Only a span that was never entered can still get a parent; without
/// a valid `traceparent` nothing changes.
pub fn set_parent_from(span: &Span, headers: &HeaderMap) {
    if let Some(parent) = Parent::from_headers(headers) {
        parent.adopt(span);
    }
}

// === impl Parent ===

impl Parent {
    /// The context in the headers of a request, or gRPC metadata as headers. None without exactly one valid `traceparent`:
    /// the trace then starts here, as the specification asks.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let context = parse_traceparent(value.to_str().ok()?)?;
        let state = read_tracestate(headers);
        Some(Self(SpanContext::new(context.trace_id(), context.span_id(), context.trace_flags(), true, state)))
    }

    /// The context of a `traceparent` that was stored.
    pub fn from_traceparent(traceparent: &str) -> Option<Self> {
        parse_traceparent(traceparent).map(Self)
    }

    /// Makes this the parent of `span`, which must not have been entered yet.
    pub fn adopt(self, span: &Span) {
        // Fails without telemetry, and for a span that has started: neither is worth a request.
        let _ = span.set_parent(Context::new().with_remote_span_context(self.0));
    }
}

/// Reads `00-<trace id>-<span id>-<flags>`; later versions may carry more after that.
fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let text = text.trim_ascii();
    let bytes = text.as_bytes();
    let is_lower_hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let well_formed = bytes.len() >= 55
        && [2, 35, 52].iter().all(|&dash| bytes[dash] == b'-')
        && [0..2, 3..35, 36..52, 53..55].into_iter().all(|part| is_lower_hex(&bytes[part]));
    let has_tail = bytes.len() > 55;
    let allowed = match bytes.get(..2)? {
        b"ff" => false,
        b"00" => !has_tail,
        _ => !has_tail || bytes[55] == b'-',
    };
    if !well_formed || !allowed {
        return None;
    }
    let trace_id = TraceId::from_hex(&text[3..35]).ok()?;
    let span_id = SpanId::from_hex(&text[36..52]).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(&text[53..55], 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

fn write_traceparent(context: &SpanContext) -> Option<String> {
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    context.is_valid().then(|| format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id()))
}

/// `tracestate` may be spread over several lines. What cannot be read is dropped: it is not ours to refuse.
fn read_tracestate(headers: &HeaderMap) -> TraceState {
    let lines: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok()).collect();
    if lines.is_empty() { TraceState::default() } else { lines.join(",").parse().unwrap_or_default() }
}

fn write_tracestate(context: &SpanContext) -> Option<HeaderValue> {
    let state = context.trace_state().header();
    if state.is_empty() { None } else { HeaderValue::try_from(state).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_read_as_the_specification_has_it() {
        let table = [
            (VALID, true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true),
            (" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b70-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902é-01", false),
            ("", false),
        ];
        for (text, valid) in table {
            assert_eq!(parse_traceparent(text).is_some(), valid, "{text}");
        }
    }

    #[test]
    fn traceparent_is_written_as_it_was_read() {
        assert_eq!(write_traceparent(&parse_traceparent(VALID).unwrap()).as_deref(), Some(VALID));
        let other_flags = VALID.replace("-01", "-03");
        assert_eq!(write_traceparent(&parse_traceparent(&other_flags).unwrap()).as_deref(), Some(VALID));
    }

    #[test]
    fn two_traceparents_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(Parent::from_headers(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(Parent::from_headers(&headers).is_none());
    }

    #[test]
    fn outside_any_span_there_is_an_id_but_nothing_to_hand_on() {
        let mut headers = HeaderMap::new();
        inject(&mut headers);
        link_to(VALID);
        assert!(headers.is_empty());
        assert_eq!(current_traceparent(), None);
        let id = current_trace_id();
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_ne!(id, current_trace_id());
    }
}
