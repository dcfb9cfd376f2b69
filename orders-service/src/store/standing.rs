//! What is open, counted by the indexes that hold nothing else.

use database::{Row, Tx, params};

use crate::error::OrdersError;

/// How much is open, and since when the oldest of each is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Orders that hold seats and are not paid.
    pub holds: i64,
    /// Payments that the acquirer has not decided.
    pub undecided: i64,
    /// Microseconds since the oldest of them was recorded.
    pub oldest_undecided: i64,
    /// Payments that the acquirer is still asked about, those that were given up among them.
    pub watched: i64,
    /// Refunds that the acquirer has not acknowledged.
    pub refunds: i64,
    /// Microseconds since the oldest of them was ordered.
    pub oldest_refund: i64,
    /// Events of the acquirer that wait for their payment.
    pub events: i64,
}

const STANDING: &str = "\
-- orders.standing
SELECT (SELECT COUNT(*) FROM orders WHERE status = 'pending') AS holds,
       (SELECT COUNT(*) FROM payments WHERE status IN ('started', 'pending')) AS undecided,
       (SELECT MIN(created_at) FROM payments WHERE status IN ('started', 'pending')) AS oldest_undecided,
       (SELECT COUNT(*) FROM payments WHERE next_ask_at IS NOT NULL) AS watched,
       (SELECT COUNT(*) FROM refunds WHERE next_try_at IS NOT NULL) AS refunds,
       (SELECT MIN(created_at) FROM refunds WHERE next_try_at IS NOT NULL) AS oldest_refund,
       (SELECT COUNT(*) FROM acquirer_events WHERE applied_at IS NULL) AS events";

/// Counts what is open.
pub async fn count(tx: &mut Tx<'_>) -> Result<Standing, OrdersError> {
    let row = tx.query_opt(STANDING, &params![]).await?.ok_or(OrdersError::Corrupt("a count has no row"))?;
    let now = tx.now();
    let age = |row: &Row, column| {
        Ok::<_, OrdersError>(row.get::<Option<i64>>(column)?.map_or(0, |since| (now - since).max(0)))
    };
    Ok(Standing {
        holds: row.get("holds")?,
        undecided: row.get("undecided")?,
        oldest_undecided: age(&row, "oldest_undecided")?,
        watched: row.get("watched")?,
        refunds: row.get("refunds")?,
        oldest_refund: age(&row, "oldest_refund")?,
        events: row.get("events")?,
    })
}
