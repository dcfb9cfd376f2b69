//! Logs for machines.

use opentelemetry::{Context, trace::TraceContextExt};
use serde::{
    Serialize,
    ser::{SerializeMap, Serializer as _},
};
use std::{error::Error, fmt};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// One JSON object a line: time, level, target, message, the event's fields, and the trace it belongs to.
///
/// The fields of spans are left out on purpose: the trace has them, and what a line says stays predictable.
pub(super) struct JsonLines;

/// A line of the access log.
const LINE_USUAL: usize = 384;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Vec::with_capacity(LINE_USUAL);
        json(&mut line, context, event).map_err(|_| fmt::Error)?;
        writeln!(writer, "{}", std::str::from_utf8(&line).map_err(|_| fmt::Error)?)
    }
}

/// Written as it goes, without a tree in between: there is a line for every request.
fn json<S, N>(line: &mut Vec<u8>, context: &FmtContext<'_, S, N>, event: &Event<'_>) -> serde_json::Result<()>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    let metadata = event.metadata();
    let mut json = serde_json::Serializer::new(line);
    let mut members = json.serialize_map(None)?;
    members.serialize_entry("timestamp", &crate::clock::format_rfc3339(crate::clock::wall()))?;
    members.serialize_entry("level", metadata.level().as_str())?;
    members.serialize_entry("target", metadata.target())?;
    let mut fields = Fields { members: &mut members, failed: None };
    event.record(&mut fields);
    if let Some(error) = fields.failed {
        return Err(error);
    }
    if let Some(span) = context.lookup_current() {
        members.serialize_entry("span", span.name())?;
    }
    Context::map_current(|current| {
        let span = current.span();
        let ids = span.span_context();
        if ids.is_valid() {
            members.serialize_entry("trace_id", &format_args!("{}", ids.trace_id()))?;
            members.serialize_entry("span_id", &format_args!("{}", ids.span_id()))?;
        }
        Ok(())
    })?;
    members.end()
}

/// The fields of spans are not written, so they need not be formatted for each request either.
pub(super) struct NoFields;

impl<'writer> FormatFields<'writer> for NoFields {
    fn format_fields<R: RecordFields>(&self, _writer: Writer<'writer>, _fields: R) -> fmt::Result {
        Ok(())
    }
}

/// The members of an object that is being written. A field that is called like one of a line's own is `event.` and its name.
struct Fields<'m, M: SerializeMap> {
    members: &'m mut M,
    failed: Option<M::Error>,
}

impl<M: SerializeMap> Fields<'_, M> {
    fn insert(&mut self, field: &Field, value: &(impl Serialize + ?Sized)) {
        if self.failed.is_none() {
            self.failed = match field.name() {
                name @ ("timestamp" | "level" | "target" | "span" | "trace_id" | "span_id") => {
                    self.members.serialize_entry(&format_args!("event.{name}"), value)
                }
                name => self.members.serialize_entry(name, value),
            }
            .err();
        }
    }
}

impl<M: SerializeMap> Visit for Fields<'_, M> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.insert(field, &crate::process::sentence(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, &format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::{
        io,
        sync::{Arc, Mutex},
    };
    use tracing_subscriber::prelude::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_json_object_with_its_trace_id() {
        use opentelemetry::trace::TracerProvider as _;
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
        let _default = tracing_subscriber::registry()
            .with(crate::telemetry::span_layer(provider.tracer("test")))
            .with(
                tracing_subscriber::fmt::layer()
                    .event_format(JsonLines)
                    .fmt_fields(NoFields)
                    .with_writer(move || writer.clone()),
            )
            .set_default();
        let error = io::Error::other("gone");
        let trace_id = tracing::info_span!("http request", secret = "sk_demo").in_scope(|| {
            tracing::warn!(attempt = 2, level = 9, error = &error as &dyn Error, "store \"down\"\nagain");
            crate::trace::current_trace_id()
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["event.level"], 9);
        assert_eq!(line["message"], "store \"down\"\nagain");
        assert_eq!((&line["attempt"], &line["error"]), (&Value::from(2), &Value::from("gone")));
        assert_eq!((&line["span"], &line["trace_id"]), (&Value::from("http request"), &Value::from(trace_id)));
        assert!(!text.contains("sk_demo"), "{text}");
    }
}
