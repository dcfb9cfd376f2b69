//! What calls have in common that travel in one transaction.

use chassis::{deadline::Deadline, trace};
use tracing::Span;

/// A call that waits for others to go with it.
pub(crate) trait Passenger {
    /// In which it was asked for.
    fn span(&self) -> &Span;
    /// After which nobody waits for it; none when somebody always does.
    fn deadline(&self) -> Option<Deadline>;

    /// Nobody waits for it any more.
    fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline.is_over())
    }
}

/// The span in which the span of their trip belongs: that of one of them.
pub(crate) fn parent(aboard: &[impl Passenger]) -> Option<tracing::Id> {
    trace::host_of(aboard.iter().map(Passenger::span))
}

/// Links the span of a trip with those of the others.
pub(crate) fn linked(span: Span, aboard: &[impl Passenger]) -> Span {
    trace::connect(&span, aboard.iter().map(Passenger::span), parent(aboard).as_ref());
    span
}

/// The deadline after which nobody of these waits.
pub(crate) fn last_deadline(aboard: &[impl Passenger]) -> Option<Deadline> {
    aboard.iter().map(Passenger::deadline).collect::<Option<Vec<_>>>()?.into_iter().max()
}
