//! What is counted and traced: every call counts in exactly one outcome, and its span never carries the key.

use std::future::Future;

use chassis::trace::Parent;
use idem_core::Answer;
use tonic::{Response, Status};
use tracing::field::Empty;
use tracing::{Id, Instrument, Span, info_span};

use crate::engine::{EngineError, Outcome};
use crate::status::Refusal;
use crate::store::{KeyId, StoreError};

/// Runs the work of one call inside its own span, and counts what it came to. `name` is `verb noun`.
pub(crate) async fn call<T>(
    command: &'static str,
    name: &'static str,
    work: impl Future<Output = Result<(T, &'static str), Refusal>>,
) -> Result<Response<T>, Status> {
    let span = span(name, Span::current().id());
    async { counted(command, work.await).map(Response::new).map_err(Status::from) }.instrument(span).await
}

/// The span of one item of a call, as [`call`] would open it if the item had come alone. It continues `traced`, the trace of whoever
/// asked for the item, and links the call that carried it, `carrier`; an item without a trace belongs to the call.
pub(crate) fn item_span(name: &'static str, traced: Option<Parent>, carrier: Option<&str>) -> Span {
    let Some(parent) = traced else { return span(name, Span::current().id()) };
    let span = span(name, None);
    parent.adopt(&span);
    span.in_scope(|| carrier.into_iter().for_each(chassis::trace::link_to));
    span
}

/// Runs what is left of one item of a call inside its span, and counts what it came to.
pub(crate) async fn item<T>(
    command: &'static str,
    span: Span,
    work: impl Future<Output = Result<(T, &'static str), Refusal>>,
) -> Result<T, Refusal> {
    async { counted(command, work.await) }.instrument(span).await
}

/// Tells how one item of a call has ended inside its span, and counts what it came to.
pub(crate) fn ended<T>(
    command: &'static str,
    span: &Span,
    tell: impl FnOnce() -> Result<(T, &'static str), Refusal>,
) -> Result<T, Refusal> {
    span.in_scope(|| counted(command, tell()))
}

/// Counts a call of many items that is refused before any of them is begun.
pub(crate) fn unbegun<T>(command: &'static str, read: Result<T, Refusal>) -> Result<T, Refusal> {
    read.inspect_err(|refusal| count(command, refused(refusal)))
}

/// Notes how many items came in one call.
pub(crate) fn note_items(command: &'static str, items: usize) {
    metrics::histogram!("idem_call_items", "command" => command).record(items as f64);
}

fn span(name: &'static str, parent: Option<Id>) -> Span {
    info_span!(
        parent: parent,
        "command",
        otel.name = name,
        idem.scope = Empty,
        idem.key_hash = Empty,
        idem.outcome = Empty,
        idem.fencing_token = Empty,
        idem.operation_id = Empty,
        idem.attempt = Empty,
    )
}

/// Notes on the current span what a command came to, and counts it.
fn counted<T>(command: &'static str, came: Result<(T, &'static str), Refusal>) -> Result<T, Refusal> {
    let outcome = match &came {
        Ok((_, outcome)) => outcome,
        Err(refusal) => refused(refusal),
    };
    Span::current().record("idem.outcome", outcome);
    count(command, outcome);
    came.map(|(answer, _)| answer)
}

fn count(command: &'static str, outcome: &'static str) {
    metrics::counter!("idem_outcomes_total", "command" => command, "outcome" => outcome).increment(1);
}

/// Notes on the current span which key a call is about.
pub(crate) fn note_key(key: &KeyId) {
    note_key_on(&Span::current(), key);
}

/// Notes on a span which key it is about.
pub(crate) fn note_key_on(span: &Span, key: &KeyId) {
    if span.is_disabled() {
        return;
    }
    span.record("idem.scope", key.scope.as_str());
    span.record("idem.key_hash", idem_core::key_hash(&key.scope, &key.key));
}

/// Notes on the current span what stands under the key, links a continued or replayed attempt, and names the outcome.
pub(crate) fn note_outcome(outcome: &Outcome) -> &'static str {
    if let Some(record) = &outcome.snapshot.record {
        Span::current()
            .record("idem.fencing_token", record.token.0)
            .record("idem.operation_id", tracing::field::display(record.operation_id))
            .record("idem.attempt", i64::from(record.attempts));
        if let Answer::Replay(_) | Answer::Stale(..) | Answer::SupersededBy(_) = outcome.answer {
            chassis::trace::link_to(record.trace_context.as_str());
        }
    }
    name_of(&outcome.answer)
}

/// The outcome as metrics and traces call it.
pub(crate) fn name_of(answer: &Answer) -> &'static str {
    match answer {
        Answer::Granted(_) => "granted",
        Answer::Replay(_) => "replay",
        Answer::InProgress => "in_progress",
        Answer::Mismatch => "mismatch",
        Answer::Stale(..) => "stale",
        Answer::Completed => "completed",
        Answer::Released => "released",
        Answer::Abandoned => "abandoned",
        Answer::Renewed => "renewed",
        Answer::Superseded(_) | Answer::SupersededBy(_) => "superseded",
        Answer::Resolved => "resolved",
        Answer::AlreadyCompleted => "already_completed",
        Answer::TokenChanged(_) => "token_changed",
        Answer::Absent => "absent",
    }
}

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Invalid(_) => "invalid",
        Refusal::ScopeNotGranted => "scope_not_granted",
        Refusal::TooLarge => "too_large",
        Refusal::NoRecord => "absent",
        Refusal::AlreadyCompleted => "already_completed",
        Refusal::TokenChanged { .. } => "token_changed",
        Refusal::Engine(EngineError::DeadlineOver) => "deadline",
        Refusal::Engine(EngineError::TimedOut) => "store_timed_out",
        Refusal::Engine(EngineError::Contended) => "contended",
        Refusal::Engine(EngineError::Store(StoreError::Unavailable(_))) => "store_unavailable",
        Refusal::Engine(EngineError::Store(StoreError::Broken(_))) => "store_broken",
    }
}

#[cfg(test)]
mod tests {
    use chassis::trace::{current_trace_id, current_traceparent};

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    async fn trace_of_item(traced: Option<&str>, carrier: Option<&str>) -> String {
        let traced = traced.and_then(Parent::from_traceparent);
        let work = async { Ok((current_trace_id(), "granted")) };
        item("reserve", item_span("reserve key", traced, carrier), work).await.unwrap_or_default()
    }

    #[tokio::test]
    async fn an_item_is_in_the_trace_of_whoever_asked_for_it_and_otherwise_in_that_of_its_call() {
        let _telemetry = chassis::telemetry::init("test");
        let carrying = async {
            let (carrier, trace_id) = (current_traceparent(), current_trace_id());
            assert_eq!(trace_of_item(Some(TRACE), carrier.as_deref()).await, "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(trace_of_item(None, carrier.as_deref()).await, trace_id);
            assert_eq!(trace_of_item(Some("nonsense"), carrier.as_deref()).await, trace_id);
        };
        carrying.instrument(info_span!("rpc")).await;
    }
}
