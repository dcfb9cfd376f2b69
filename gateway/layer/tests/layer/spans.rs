//! What spans said when they ended.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::{LookupSpan, Registry},
};

/// Fields by name.
pub type Fields = BTreeMap<String, String>;

/// Keeps the spans that have ended, of every test of this process: whether a span is wanted at all is remembered by process and not
/// by thread, so a listener of one test's own may hear nothing.
static SPANS: LazyLock<Spans> = LazyLock::new(|| {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(Registry::default().with(spans.clone())).expect("there is no other");
    spans
});

#[derive(Clone, Default)]
struct Spans {
    ended: Arc<Mutex<Vec<(&'static str, Fields)>>>,
}

struct Writing<'a>(&'a mut Fields);

/// Listens from now on, if it is not done already.
pub fn listen() {
    LazyLock::force(&SPANS);
}

/// The fields of the spans of this name that have ended with this value in a field.
pub fn ended(name: &str, field: &str, value: &str) -> Vec<Fields> {
    let ended = SPANS.ended.lock().unwrap();
    let wanted = ended.iter().filter(|(of, fields)| *of == name && fields.get(field).is_some_and(|is| is == value));
    wanted.map(|(_, fields)| fields.clone()).collect()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Writing(&mut fields));
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Writing(span.extensions_mut().get_mut::<Fields>().unwrap()));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions_mut().remove::<Fields>().unwrap();
        self.ended.lock().unwrap().push((span.name(), fields));
    }
}

impl Visit for Writing<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
