//! The inbox of the acquirer's events, keyed by event id.

use std::collections::BTreeSet;

use database::{Row, Tx, params};

use crate::error::OrdersError;

/// An event of the acquirer, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name at the acquirer.
    pub id: String,
    /// What it says.
    pub kind: String,
    /// The payment it speaks of, as it has it.
    pub payment: Option<String>,
    /// Minor units, as it has them.
    pub amount: Option<i64>,
    /// Currency, as it has it.
    pub currency: Option<String>,
}

const INSERT_ALL: &str = "\
-- orders.events_insert
INSERT INTO acquirer_events (id, type, payment_id, amount, currency, body, received_at)
{rows}
    ON CONFLICT (id) DO NOTHING
RETURNING id";

const LOCK_WAITING: &str = "\
-- orders.event_lock_waiting
SELECT id, type, payment_id, amount, currency
  FROM acquirer_events
 WHERE id = $1
   AND applied_at IS NULL
   FOR UPDATE";

const APPLIED: &str = "\
-- orders.event_applied
UPDATE acquirer_events
   SET applied_at = $2
 WHERE id = $1
   AND applied_at IS NULL";

// Spelt so that Postgres does not go through the index of all that waits.
const APPLIED_ALL: &str = "\
-- orders.events_applied
  WITH done (id) AS ({rows})
UPDATE acquirer_events
   SET applied_at = $1
  FROM done
 WHERE acquirer_events.id = done.id
   AND COALESCE(applied_at, 0) = 0";

const WAITING: &str = "\
-- orders.events_waiting
SELECT e.id
  FROM acquirer_events e
  JOIN payments p ON p.id = e.payment_id
 WHERE e.applied_at IS NULL
 LIMIT $1";

/// Keeps events, given in the order of their ids, each once, with the bytes they came in; returns those that had not been kept before.
pub async fn insert_all<'e>(
    tx: &mut Tx<'_>,
    events: impl Iterator<Item = (&'e Event, &'e [u8])>,
) -> Result<BTreeSet<String>, OrdersError> {
    let now = tx.now();
    let row = |(event, body): (&Event, &[u8])| {
        let Event { id, kind, payment, amount, currency } = event;
        params![id, kind, payment.as_deref(), *amount, currency.as_deref(), body, now]
    };
    let rows: Vec<_> = events.map(row).collect();
    tx.query_rows(INSERT_ALL, &[], &rows).await?.iter().map(|row| Ok(row.get("id")?)).collect()
}

/// Locks an event that has not been applied yet; none when it has.
pub async fn lock_waiting(tx: &mut Tx<'_>, id: &str) -> Result<Option<Event>, OrdersError> {
    tx.query_opt(LOCK_WAITING, &params![id]).await?.as_ref().map(read).transpose()
}

/// Marks a locked event applied.
pub async fn applied(tx: &mut Tx<'_>, id: &str) -> Result<(), OrdersError> {
    let params = params![id, tx.now()];
    super::exactly(1, tx.execute(APPLIED, &params).await?)
}

/// Marks events applied that this transaction has kept.
pub async fn applied_all(tx: &mut Tx<'_>, ids: impl Iterator<Item = &str>) -> Result<(), OrdersError> {
    let rows: Vec<_> = ids.map(|id| params![id]).collect();
    let now = params![tx.now()];
    super::exactly(rows.len() as u64, tx.execute_rows(APPLIED_ALL, &now, &rows).await?)
}

/// Events that came before their payment, now that it is there.
pub async fn waiting(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<String>, OrdersError> {
    let rows = tx.query(WAITING, &params![limit]).await?;
    rows.iter().map(|row| Ok(row.get("id")?)).collect()
}

fn read(row: &Row) -> Result<Event, OrdersError> {
    Ok(Event {
        id: row.get("id")?,
        kind: row.get("type")?,
        payment: row.get("payment_id")?,
        amount: row.get("amount")?,
        currency: row.get("currency")?,
    })
}
