//! Counting: every keyed request has exactly one outcome.

use std::borrow::Cow;

use metrics::counter;

/// What became of a keyed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Executed, and the answer is final.
    Executed,
    /// Executed, and it had no effect.
    Released,
    /// Begun and not decided: a 202.
    Undecided,
    /// The stored answer.
    Replayed,
    /// Settled by asking the system of record.
    Recovered,
    /// Somebody else is at it.
    InProgress,
    /// Somebody downstream has not decided.
    OutcomePending,
    /// Whether anything happened is unknown.
    InDoubt,
    /// The key could not be reserved.
    Unavailable,
    /// The key is bound to another request.
    Mismatch,
    /// No key where one is required.
    KeyMissing,
    /// A key that cannot be read.
    KeyInvalid,
    /// Refused before its key was reserved.
    Refused,
    /// The client went away before its key was reserved, or the process ended.
    CutOff,
}

/// What became of a keyed request, as `gateway_idempotency_outcomes_total` counts it: in the extensions of every answer of the layer,
/// for whoever logs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted(pub &'static str);

/// One keyed request that has not been counted yet.
pub(crate) struct Tally {
    route: Option<Cow<'static, str>>,
}

/// One connection that waits for an operation.
pub(crate) struct Waiting {
    route: Option<Cow<'static, str>>,
}

impl Verdict {
    /// As the metric and the span have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verdict::Executed => "executed",
            Verdict::Released => "released",
            Verdict::Undecided => "undecided",
            Verdict::Replayed => "replayed",
            Verdict::Recovered => "recovered",
            Verdict::InProgress => "in_progress",
            Verdict::OutcomePending => "outcome_pending",
            Verdict::InDoubt => "in_doubt",
            Verdict::Unavailable => "unavailable",
            Verdict::Mismatch => "mismatch",
            Verdict::KeyMissing => "key_missing",
            Verdict::KeyInvalid => "key_invalid",
            Verdict::Refused => "refused",
            Verdict::CutOff => "cut_off",
        }
    }
}

impl Tally {
    pub(crate) fn new(route: Cow<'static, str>) -> Self {
        Self { route: Some(route) }
    }

    pub(crate) fn count(mut self, verdict: Verdict) -> Counted {
        self.count_once(verdict);
        Counted(verdict.as_str())
    }

    fn count_once(&mut self, verdict: Verdict) {
        if let Some(route) = self.route.take() {
            counter!("gateway_idempotency_outcomes_total", "route" => route, "outcome" => verdict.as_str())
                .increment(1);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.count_once(Verdict::CutOff);
    }
}

impl Waiting {
    pub(crate) fn new(route: Cow<'static, str>) -> Self {
        Self { route: Some(route) }
    }

    /// The answer came while the client was there.
    pub(crate) fn end(mut self) {
        self.route = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(route) = self.route.take() {
            counter!("gateway_idempotency_client_gone_total", "route" => route).increment(1);
        }
    }
}
