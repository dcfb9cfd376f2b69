//! Nothing is recorded that nobody hears: while the collector does not take what it is sent, spans are not recorded, and cost as little
//! as without a collector. Ids go on being made and handed on. From time to time one trace is recorded, to find out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceContextExt, TraceId, TraceState},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Config, SamplingDecision, SamplingResult, ShouldSample, SpanData, SpanExporter},
};
use tokio::time::Instant;

/// After the first failure; twice as long after each one more.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whether the collector takes what it is sent. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Hearing(Arc<State>);

#[derive(Debug)]
struct State {
    begun: Instant,
    failures: AtomicU32,
    /// When to try again, in milliseconds since `begun`; zero while it hears.
    next_try: AtomicU64,
}

/// Exports, and notes whether it could.
#[derive(Debug)]
pub(super) struct Noting<E> {
    pub(super) exporter: E,
    pub(super) hearing: Hearing,
}

/// Samples as the environment says, and nothing while nobody hears.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    sampler: Box<dyn ShouldSample>,
    hearing: Hearing,
}

// === impl Hearing ===

impl Hearing {
    pub(super) fn new() -> Self {
        Self(Arc::new(State { begun: Instant::now(), failures: AtomicU32::new(0), next_try: AtomicU64::new(0) }))
    }

    fn now(&self) -> u64 {
        self.0.begun.elapsed().as_millis() as u64
    }

    /// Notes how an export went; says whether that is news.
    fn note(&self, is_heard: bool, now: u64) -> bool {
        if is_heard {
            self.0.next_try.store(0, Ordering::Relaxed);
            return self.0.failures.swap(0, Ordering::Relaxed) > 0;
        }
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed);
        self.0.next_try.store(now + pause(failures), Ordering::Relaxed);
        failures == 0
    }

    /// Whether a trace that begins now is worth recording.
    fn wants_trace(&self, now: impl FnOnce() -> u64) -> bool {
        let next_try = self.0.next_try.load(Ordering::Relaxed);
        if next_try == 0 {
            return true;
        }
        let now = now();
        let after = now + pause(self.0.failures.load(Ordering::Relaxed));
        // One trace is enough to find out, so whoever is first puts the next one off.
        now >= next_try
            && self.0.next_try.compare_exchange(next_try, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn pause(failures: u32) -> u64 {
    PAUSE.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX).as_millis() as u64
}

// === impl Noting ===

impl<E: SpanExporter> SpanExporter for Noting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let done = self.exporter.export(batch).await;
        if self.hearing.note(done.is_ok(), self.hearing.now()) {
            match &done {
                Ok(()) => tracing::info!("the collector takes traces again; they are recorded"),
                Err(error) => tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "the collector does not take traces; until it does, few are recorded"
                ),
            }
        }
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

// === impl Heard ===

impl Heard {
    /// The sampler that the standard variables ask for.
    pub(super) fn of_environment(hearing: Hearing) -> Self {
        Self { sampler: Config::default().sampler, hearing }
    }
}

impl ShouldSample for Heard {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        // What is recorded is recorded whole: a span inside this process goes with its parent.
        let begins_here = parent.is_none_or(|parent| {
            let span = parent.span();
            !span.span_context().is_valid() || span.span_context().is_remote()
        });
        if begins_here && !self.hearing.wants_trace(|| self.hearing.now()) {
            let trace_state =
                parent.map_or_else(TraceState::default, |parent| parent.span().span_context().trace_state().clone());
            return SamplingResult { decision: SamplingDecision::Drop, attributes: Vec::new(), trace_state };
        }
        self.sampler.should_sample(parent, trace_id, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
    use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};

    #[test]
    fn while_it_is_not_heard_one_trace_a_pause_finds_out() {
        let hearing = Hearing::new();
        let wants = |now| hearing.wants_trace(|| now);
        assert!(wants(0) && wants(0));
        assert!(hearing.note(false, 10), "the first failure is news");
        assert!(!wants(10) && !wants(1009));
        assert!(wants(1010), "a second later it is tried");
        assert!(!wants(1010) && !wants(3009), "by one alone");
        assert!(!hearing.note(false, 1500), "the second is none");
        assert!(!wants(3499) && wants(3500));
        for _ in 0..100 {
            hearing.note(false, 4000);
        }
        assert!(!wants(33_999) && wants(34_000), "half a minute at most");
        assert!(hearing.note(true, 34_100), "and news when it is over");
        assert!(wants(34_100) && wants(34_100) && !hearing.note(true, 34_200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_recorded_is_recorded_whole_and_ids_are_made_all_the_same() {
        let (exporter, hearing) = (InMemorySpanExporter::default(), Hearing::new());
        let sampler =
            Heard { sampler: Box::new(Sampler::ParentBased(Box::new(Sampler::AlwaysOn))), hearing: hearing.clone() };
        let noting = Noting { exporter: exporter.clone(), hearing: hearing.clone() };
        let provider = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(noting).build();
        let tracer = provider.tracer("test");
        let request = || {
            let context = Context::new().with_span(tracer.start_with_context("outer", &Context::new()));
            tracer.start_with_context("inner", &context).end();
            context.span().end();
            context.span().span_context().clone()
        };
        assert!(request().is_sampled());
        assert_eq!(exporter.get_finished_spans().unwrap().len(), 2);
        hearing.note(false, hearing.now());
        let unheard = request();
        assert!(unheard.is_valid() && !unheard.is_sampled());
        assert_eq!(exporter.get_finished_spans().unwrap().len(), 2);
        tokio::time::advance(PAUSE).await;
        assert!(request().is_sampled());
        assert_eq!(exporter.get_finished_spans().unwrap().len(), 4, "the one that finds out is whole");
        assert!(request().is_sampled(), "and it was heard");
    }
}
