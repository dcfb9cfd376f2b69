//! Tickets as they are used.

use database::{Row, Tx, params};

use crate::{
    error::OrdersError,
    operation_id::{OrderId, Tenant, TicketId},
    timestamp::Timestamp,
};

/// A ticket's own row.
#[derive(Clone, Debug)]
pub struct TicketRow {
    /// Its name.
    pub id: TicketId,
    /// The order it belongs to.
    pub order: OrderId,
    /// When it was first used.
    pub used_at: Option<Timestamp>,
}

const FIND_OF: &str = "\
-- orders.ticket_find_of
SELECT t.id, t.order_id, t.used_at
  FROM tickets t
  JOIN orders o ON o.id = t.order_id
 WHERE t.id = $1
   AND o.tenant = $2";

const USE: &str = "\
-- orders.ticket_use
UPDATE tickets
   SET used_at = $2
 WHERE id = $1
   AND used_at IS NULL";

const HAS_USED: &str = "\
-- orders.order_has_used_ticket
SELECT id
  FROM tickets
 WHERE order_id = $1
   AND used_at IS NOT NULL
 LIMIT 1";

/// Reads a ticket of a tenant without locking it; another tenant's is not there.
pub async fn find_of(tx: &mut Tx<'_>, tenant: &Tenant, id: TicketId) -> Result<Option<TicketRow>, OrdersError> {
    let row = tx.query_opt(FIND_OF, &params![id.to_string(), tenant.as_str()]).await?;
    let read = |row: &Row| {
        Ok(TicketRow {
            id: super::id(row, "id", TicketId::parse)?,
            order: super::id(row, "order_id", OrderId::parse)?,
            used_at: row.get::<Option<i64>>("used_at")?.map(Timestamp),
        })
    };
    row.as_ref().map(read).transpose()
}

/// Marks a ticket used now; false when it was used before.
pub async fn use_now(tx: &mut Tx<'_>, id: TicketId) -> Result<bool, OrdersError> {
    let params = params![id.to_string(), tx.now()];
    Ok(tx.execute(USE, &params).await? == 1)
}

/// Was a ticket of this order used?
pub async fn has_used(tx: &mut Tx<'_>, id: OrderId) -> Result<bool, OrdersError> {
    Ok(tx.query_opt(HAS_USED, &params![id.to_string()]).await?.is_some())
}
