//! The watch over every payment id that was sent, until the acquirer has decided it.
//!
//! An open payment is asked for after 1, 2, 4, … seconds, at most a minute apart (five seconds while the acquirer is away): a webhook
//! that is lost costs a moment, not the money.
//! One that was given up is watched for a day and a bit, ever more seldom, because a create that was on its way may land late. The
//! schedule is in the rows and judged by the store's clock, so it survives restarts and replicas share it.

use std::time::Duration;

use chassis::deadline::Deadline;
use futures::{StreamExt as _, stream};
use tracing::Instrument as _;

use crate::{
    error::OrdersError,
    payment::PaymentStatus,
    resolve::Learnt,
    shop::Shop,
    store::payments::{self, LastWord, PaymentRow},
    timestamp::Timestamp,
};

/// The first question after a charge was left undecided.
pub(crate) const FIRST: Duration = Duration::from_secs(1);

/// Between two questions about an open payment, at most.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// Between two questions about an open payment when the acquirer could not be reached: the key waits for it, and has a lease and ten
/// seconds from when the acquirer is there again.
const UNREACHABLE_MAX: Duration = Duration::from_secs(5);

/// Between two questions about a payment that was given up, at most.
const CLOSED_MAX: Duration = Duration::from_secs(10 * 60);

/// How long a payment that was given up is asked for: a full day, and some for the last question to fall after it.
const CLOSED_FOR: Duration = Duration::from_secs(25 * 3600);

/// How long one question may take: an acquirer that hangs must not keep the others of its round waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// Payments taken in one round, and asked for side by side.
const ROUND: u32 = 32;

impl Shop {
    /// Asks for every payment whose time has come; returns how many were asked for.
    pub(crate) async fn watch_round(&self) -> Result<usize, OrdersError> {
        let due = self.store.read("due payments", |tx| Box::pin(async move { payments::due(tx, ROUND).await })).await?;
        let asked = stream::iter(due).map(|payment| async move {
            let span = tracing::info_span!(
                "watch payment",
                payment.id = %payment.id,
                idem.operation_id = %payment.operation,
            );
            match self.watch_one(&payment).instrument(span).await {
                Ok(asked) => usize::from(asked),
                Err(error) => {
                    tracing::warn!(payment.id = %payment.id, error = &error as &dyn std::error::Error, "a watched payment could not be asked for");
                    0
                }
            }
        });
        Ok(asked.buffer_unordered(ROUND as usize).fold(0, |sum, asked| async move { sum + asked }).await)
    }

    async fn watch_one(&self, payment: &PaymentRow) -> Result<bool, OrdersError> {
        if !self.claim(payment).await? {
            return Ok(false);
        }
        if let Learnt::Unreachable(cause) = self.ask(payment, Some(Deadline::after(PATIENCE))).await? {
            tracing::warn!(payment.id = %payment.id, cause, "the acquirer cannot be asked for a watched payment");
        }
        Ok(true)
    }

    /// Takes the turn to ask for a payment; false when it is not due, or another replica took it.
    pub(crate) async fn claim(&self, payment: &PaymentRow) -> Result<bool, OrdersError> {
        let (id, payment) = (payment.id, payment.clone());
        let (is_mine, is_last) = self
            .act("claim payment", move |tx| {
                let payment = payment.clone();
                Box::pin(async move {
                    let next = next_ask(&payment, Timestamp(tx.now()));
                    Ok((payments::claim(tx, &payment, next).await?, next.is_none()))
                })
            })
            .await?;
        if is_mine && is_last {
            metrics::counter!("orders_watches_ended_total").increment(1);
            tracing::warn!(payment.id = %id, "a payment that was given up is asked for one last time");
        }
        Ok(is_mine)
    }
}

/// When to ask again after asking now; none when a payment that was given up has been watched long enough.
fn next_ask(payment: &PaymentRow, now: Timestamp) -> Option<Timestamp> {
    // One that was given up and then turned out to be there is waited for like any other that the acquirer has not decided.
    let is_given_up = payment.status == PaymentStatus::Closed && payment.last_word != Some(LastWord::Pending);
    let is_over = |closed_at: Timestamp| closed_at.plus(CLOSED_FOR) <= now;
    let longest = match (is_given_up, payment.closed_at) {
        (true, Some(closed_at)) if is_over(closed_at) => return None,
        (true, _) => CLOSED_MAX,
        (false, _) if payment.last_word == Some(LastWord::Unreachable) => UNREACHABLE_MAX,
        (false, _) => OPEN_MAX,
    };
    Some(now.plus(backoff(payment.asks + 1, longest)))
}

/// 1, 2, 4, … seconds, at most `longest`.
pub(crate) fn backoff(tries: u32, longest: Duration) -> Duration {
    FIRST.saturating_mul(1 << tries.min(30)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        money::{Currency, Money},
        operation_id::OperationId,
    };

    fn watched(status: PaymentStatus, last_word: LastWord) -> PaymentRow {
        let operation = OperationId::parse("0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11").expect("a UUID");
        PaymentRow {
            id: operation.payment(),
            operation,
            tenant: "demo-a".to_owned(),
            order: operation.order(),
            amount: Money { amount: 1, currency: Currency::new("EUR").expect("three capitals") },
            method: "pm".to_owned(),
            status,
            closed_at: (status == PaymentStatus::Closed).then_some(Timestamp(0)),
            next_ask_at: Some(Timestamp(0)),
            asks: 20,
            last_word: Some(last_word),
        }
    }

    #[test]
    fn only_what_was_given_up_and_is_nowhere_is_asked_for_more_and_more_seldom_and_at_last_no_more() {
        let after = |status, word, now: Duration| {
            next_ask(&watched(status, word), Timestamp(0).plus(now)).map(|next| next.0 - Timestamp(0).plus(now).0)
        };
        let (open, closed) = (OPEN_MAX.as_micros() as i64, CLOSED_MAX.as_micros() as i64);
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(after(PaymentStatus::Pending, LastWord::Pending, day * 30), Some(open));
        assert_eq!(after(PaymentStatus::Started, LastWord::NotFound, day * 30), Some(open));
        let unreachable = UNREACHABLE_MAX.as_micros() as i64;
        assert_eq!(after(PaymentStatus::Started, LastWord::Unreachable, day * 30), Some(unreachable));
        assert_eq!(after(PaymentStatus::Closed, LastWord::NotFound, day), Some(closed));
        assert_eq!(after(PaymentStatus::Closed, LastWord::NotFound, CLOSED_FOR), None);
        assert_eq!(after(PaymentStatus::Closed, LastWord::Pending, day * 30), Some(open));
    }

    #[test]
    fn intervals_double_up_to_their_limit() {
        let seconds: Vec<u64> = (0..9).map(|tries| backoff(tries, OPEN_MAX).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff(u32::MAX, CLOSED_MAX), CLOSED_MAX);
    }
}
