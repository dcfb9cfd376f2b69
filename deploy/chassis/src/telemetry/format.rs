//! Logs for machines.

use opentelemetry::{Context, trace::TraceContextExt};
use serde_json::{Map, Value};
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

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Map::new();
        let metadata = event.metadata();
        line.insert("timestamp".to_owned(), crate::clock::format_rfc3339(crate::clock::wall()).into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        event.record(&mut Fields(&mut line));
        if let Some(span) = context.lookup_current() {
            line.insert("span".to_owned(), span.name().into());
        }
        Context::map_current(|current| {
            let span = current.span();
            let ids = span.span_context();
            if ids.is_valid() {
                line.insert("trace_id".to_owned(), ids.trace_id().to_string().into());
                line.insert("span_id".to_owned(), ids.span_id().to_string().into());
            }
        });
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The fields of spans are not written, so they need not be formatted for each request either.
pub(super) struct NoFields;

impl<'writer> FormatFields<'writer> for NoFields {
    fn format_fields<R: RecordFields>(&self, _writer: Writer<'writer>, _fields: R) -> fmt::Result {
        Ok(())
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.insert(field, crate::process::sentence(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            tracing::warn!(attempt = 2, error = &error as &dyn Error, "store \"down\"\nagain");
            crate::trace::current_trace_id()
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "store \"down\"\nagain");
        assert_eq!((&line["attempt"], &line["error"]), (&Value::from(2), &Value::from("gone")));
        assert_eq!((&line["span"], &line["trace_id"]), (&Value::from("http request"), &Value::from(trace_id)));
        assert!(!text.contains("sk_demo"), "{text}");
    }
}
