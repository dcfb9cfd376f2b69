//! The inbox of the acquirer's events, keyed by event id.

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

const INSERT: &str = "\
-- orders.event_insert
INSERT INTO acquirer_events (id, type, payment_id, amount, currency, body, received_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (id) DO NOTHING";

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

const WAITING: &str = "\
-- orders.events_waiting
SELECT e.id
  FROM acquirer_events e
  JOIN payments p ON p.id = e.payment_id
 WHERE e.applied_at IS NULL
 LIMIT $1";

/// Keeps an event with the bytes it came in; false when it had been kept before.
pub async fn insert(tx: &mut Tx<'_>, event: &Event, body: &[u8]) -> Result<bool, OrdersError> {
    let Event { id, kind, payment, amount, currency } = event;
    let params = params![id, kind, payment.as_deref(), *amount, currency.as_deref(), body, tx.now()];
    Ok(tx.execute(INSERT, &params).await? == 1)
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
