//! What the work in the background has to do, in one question.

use std::time::Duration;

use database::{Tx, params};

use crate::error::OrdersError;

/// How long until each kind of work has something to do: zero when it has, none when nothing is in sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// A hold that is over.
    pub hold: Option<Duration>,
    /// A payment to ask for.
    pub payment: Option<Duration>,
    /// A refund to send.
    pub refund: Option<Duration>,
    /// Whether an event that came before its payment can be applied.
    pub event: bool,
}

// Each is the first entry of a partial index.
const FIND: &str = "\
-- orders.due
SELECT (SELECT min(hold_until) FROM orders WHERE status = 'pending') AS hold,
       (SELECT min(next_ask_at) FROM payments WHERE next_ask_at IS NOT NULL) AS payment,
       (SELECT min(next_try_at) FROM refunds WHERE next_try_at IS NOT NULL) AS refund,
       (SELECT count(*)
          FROM (SELECT e.id
                  FROM acquirer_events e
                  JOIN payments p ON p.id = e.payment_id
                 WHERE e.applied_at IS NULL
                 LIMIT 1) AS waiting) AS events";

/// What is due, by the store's clock.
pub async fn find(tx: &mut Tx<'_>) -> Result<Due, OrdersError> {
    let now = tx.now();
    let row = tx.query_opt(FIND, &params![]).await?.ok_or(OrdersError::Corrupt("no row of due times"))?;
    let left = |column: &'static str| -> Result<Option<Duration>, OrdersError> {
        let at: Option<i64> = row.get(column)?;
        Ok(at.map(|at| Duration::from_micros(at.saturating_sub(now).try_into().unwrap_or(0))))
    };
    let events: i64 = row.get("events")?;
    Ok(Due { hold: left("hold")?, payment: left("payment")?, refund: left("refund")?, event: events > 0 })
}
