//! Repeating a call until it is answered or its deadline has come.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use dial::Channel;
use idem_core::WAIT_MAX;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Response, Status};
use tonic_types::StatusExt;
use tracing::{Instrument, Span, debug, info_span};

use crate::{
    ClientError,
    connect::Channels,
    error::{TimedOut, is_transient},
};

// A try that hangs is given up while there is time for another one: callers answer within two seconds.
const TRY_TIMEOUT: Duration = Duration::from_millis(900);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(400);

// A call pays in a fifth of a repeat, so a service that answers nobody sees a fifth more tries, not several times as many; what is saved up
// lets a client that is seldom used, or that meets a replica that has just gone, repeat as often as its deadlines allow.
const REPEAT: u32 = 5;
const BUDGET_MAX: u32 = 200 * REPEAT;

/// What repeating may cost, shared by all calls of a client.
pub(crate) struct Budget(AtomicU32);

/// How a call may be made again.
#[derive(Clone, Copy)]
pub(crate) enum Tries {
    /// Repeating is safe: short tries until the deadline.
    Many,
    /// Repeating is safe, and each try may first wait this long for a running holder.
    Waiting(Duration),
    /// Repeating would cost something: one try as long as the deadline.
    One,
}

impl Channels {
    /// Makes the call, again and again as `tries` allows, within `deadline`. `rpc` names it in spans, `Service/Method`.
    pub(crate) async fn call<M, A, F>(
        &self,
        rpc: &'static str,
        message: M,
        tries: Tries,
        deadline: Instant,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<A, ClientError>
    where
        M: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.repeat(rpc, message, tries, deadline, send).instrument(span(rpc)).await
    }

    /// As [`call`](Self::call), in the current span.
    pub(crate) async fn repeat<M, A, F>(
        &self,
        rpc: &'static str,
        message: M,
        tries: Tries,
        deadline: Instant,
        send: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<A, ClientError>
    where
        M: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut pause = PAUSE_MIN;
        self.budget.pay_in();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::timed_out());
            }
            let limit = left.min(tries.limit());
            let request = self.request(message.clone(), limit);
            // The timeout counts here too: a request that waits for a connection has not reached the part that knows of it.
            let failure = match timeout(limit, send(self.channel(), request)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::from_error(TimedOut.into()),
            };
            if !is_transient(&failure) || matches!(tries, Tries::One) {
                return Err(ClientError::from_status(failure));
            }
            let rest = asked_pause(&failure).unwrap_or(pause).mul_f64(jitter());
            if Instant::now() + rest >= deadline || !self.budget.spend() {
                return Err(ClientError::from_status(failure));
            }
            debug!(rpc, error = %failure, "the call is made again");
            sleep(rest).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// The span of a call, under the current one.
pub(crate) fn span(rpc: &'static str) -> Span {
    let (service, method) = rpc.split_once('/').unwrap_or((rpc, ""));
    info_span!(
        "rpc call",
        otel.name = format_args!("rpc {rpc}"),
        otel.kind = "client",
        rpc.system = "grpc",
        rpc.service = format_args!("idem.v1.{service}"),
        rpc.method = method,
    )
}

// === impl Budget ===

impl Budget {
    fn pay_in(&self) {
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| (saved < BUDGET_MAX).then(|| saved + 1));
    }

    /// False when there is not enough for a repeat.
    fn spend(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(REPEAT)).is_ok()
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BUDGET_MAX))
    }
}

impl Tries {
    fn limit(self) -> Duration {
        match self {
            Tries::Many => TRY_TIMEOUT,
            Tries::Waiting(wait) => TRY_TIMEOUT + wait.min(WAIT_MAX),
            Tries::One => Duration::MAX,
        }
    }
}

/// How long the service asks us to pause; bounded, since our deadlines are short.
fn asked_pause(status: &Status) -> Option<Duration> {
    let delay = status.get_details_retry_info()?.retry_delay?;
    (!delay.is_zero()).then_some(delay.min(PAUSE_MAX))
}

/// Between a half and one and a half, so that callers who failed together do not come back together.
fn jitter() -> f64 {
    let random = uuid::Uuid::new_v4().as_u64_pair().1 as u32;
    0.5 + f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_cost_what_calls_have_paid_in() {
        let budget = Budget::default();
        assert_eq!((0..1000).filter(|_| budget.spend()).count(), 200);
        (0..REPEAT - 1).for_each(|_| budget.pay_in());
        assert!(!budget.spend());
        budget.pay_in();
        assert!(budget.spend() && !budget.spend());
    }
}
