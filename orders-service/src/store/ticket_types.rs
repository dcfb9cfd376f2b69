//! Ticket types and the two counters of their stock.
//!
//! `held` counts every pending order, also those whose hold is over until the sweeper has been there; reads leave those out, and who
//! needs their seats sweeps them first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use database::{Row, Tx, Value, params};

use crate::{
    error::OrdersError,
    operation_id::{OrderId, Tenant},
    stock::{Offer, TicketType},
    store::orders::LAPSE_MAX,
};

const VIEW: &str = "\
-- orders.ticket_type_view
SELECT t.id, t.venue, t.name, t.price, t.currency, t.capacity, t.sold,
       t.held - COALESCE((SELECT CAST(SUM(i.quantity) AS BIGINT)
                            FROM orders o
                            JOIN order_items i ON i.order_id = o.id
                           WHERE o.status = 'pending'
                             AND o.hold_until <= $2
                             AND i.ticket_type = t.id), 0) AS held
  FROM ticket_types t
 WHERE t.id = $1";

const LOCK: &str = "\
-- orders.ticket_type_lock
SELECT id, venue, name, price, currency, capacity, sold, held
  FROM ticket_types
 WHERE id = $1
   FOR UPDATE";

// The locks are taken above the sort, so in the order of the ids.
const LOCK_ALL: &str = "\
-- orders.ticket_types_lock
SELECT id, venue, name, price, currency, capacity, sold, held
  FROM ticket_types
 WHERE id IN ({rows})
 ORDER BY id
   FOR UPDATE";

// The locks are taken above the sort, so in the order of the ids.
const LOCK_OF_ORDER: &str = "\
-- orders.ticket_types_lock_of_order
SELECT id
  FROM ticket_types
 WHERE id IN (SELECT ticket_type FROM order_items WHERE order_id = $1)
 ORDER BY id
   FOR UPDATE";

const LOCK_OF_ORDER_OF: &str = "\
-- orders.ticket_types_lock_of_order_of
SELECT id
  FROM ticket_types
 WHERE id IN (SELECT i.ticket_type
                FROM order_items i
                JOIN orders o ON o.id = i.order_id
               WHERE i.order_id = $1
                 AND o.tenant = $2)
 ORDER BY id
   FOR UPDATE";

const INSERT: &str = "\
-- orders.ticket_type_insert
INSERT INTO ticket_types (id, venue, name, price, currency, capacity)
VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (id) DO NOTHING";

const UPDATE: &str = "\
-- orders.ticket_type_update
UPDATE ticket_types
   SET venue = $2, name = $3, price = $4, currency = $5, capacity = $6
 WHERE id = $1
   AND sold + held <= $6";

const HOLD_ALL: &str = "\
-- orders.stock_hold
  WITH taken (id, quantity) AS ({rows})
UPDATE ticket_types
   SET held = held + taken.quantity
  FROM taken
 WHERE ticket_types.id = taken.id
   AND capacity - sold - held >= taken.quantity";

const SELL_HELD: &str = "\
-- orders.stock_sell_held
UPDATE ticket_types
   SET held = held - i.quantity, sold = sold + i.quantity
  FROM order_items i
 WHERE i.order_id = $1
   AND ticket_types.id = i.ticket_type
   AND ticket_types.held >= i.quantity";

const SELL_ALL_HELD: &str = "\
-- orders.stock_sell_all_held
  WITH leaving (id, quantity) AS ({rows})
UPDATE ticket_types
   SET held = held - leaving.quantity, sold = sold + leaving.quantity
  FROM leaving
 WHERE ticket_types.id = leaving.id
   AND held >= leaving.quantity";

const SELL_FREE: &str = "\
-- orders.stock_sell_free
UPDATE ticket_types
   SET sold = sold + i.quantity
  FROM order_items i
 WHERE i.order_id = $1
   AND ticket_types.id = i.ticket_type
   AND capacity - sold - held >= i.quantity";

const FREE_HELD: &str = "\
-- orders.stock_free_held
UPDATE ticket_types
   SET held = held - i.quantity
  FROM order_items i
 WHERE i.order_id = $1
   AND ticket_types.id = i.ticket_type
   AND ticket_types.held >= i.quantity";

static LOCK_OF_ORDERS: LazyLock<String> = LazyLock::new(|| {
    let ids = super::places(1, LAPSE_MAX);
    format!(
        "\
-- orders.ticket_types_lock_of_orders
SELECT id
  FROM ticket_types
 WHERE id IN (SELECT ticket_type FROM order_items WHERE order_id IN ({ids}))
 ORDER BY id
   FOR UPDATE"
    )
});

static FREE_HELD_OF_ORDERS: LazyLock<String> = LazyLock::new(|| {
    let ids = super::places(1, LAPSE_MAX);
    format!(
        "\
-- orders.stock_free_held_of_orders
UPDATE ticket_types
   SET held = held - s.quantity
  FROM (SELECT ticket_type, CAST(SUM(quantity) AS BIGINT) AS quantity
          FROM order_items
         WHERE order_id IN ({ids})
         GROUP BY ticket_type) AS s
 WHERE ticket_types.id = s.ticket_type"
    )
});

const FREE_SOLD: &str = "\
-- orders.stock_free_sold
UPDATE ticket_types
   SET sold = sold - i.quantity
  FROM order_items i
 WHERE i.order_id = $1
   AND ticket_types.id = i.ticket_type
   AND ticket_types.sold >= i.quantity";

const SHORT_OF: &str = "\
-- orders.stock_short_of
SELECT t.id
  FROM order_items i
  JOIN ticket_types t ON t.id = i.ticket_type
 WHERE i.order_id = $1
   AND t.capacity - t.sold - t.held < i.quantity
 ORDER BY t.id";

const HAS_HOLD_OVER: &str = "\
-- orders.stock_has_hold_over
SELECT i.ticket_type
  FROM orders o
  JOIN order_items i ON i.order_id = o.id
 WHERE o.status = 'pending'
   AND o.hold_until <= $2
   AND i.ticket_type = $1
 LIMIT 1";

const WITH_HOLDS_OVER: &str = "\
-- orders.stock_with_holds_over
  WITH short (id) AS ({rows})
SELECT id
  FROM short
 WHERE EXISTS (SELECT 1
                 FROM orders o
                 JOIN order_items i ON i.order_id = o.id
                WHERE o.status = 'pending'
                  AND o.hold_until <= $1
                  AND i.ticket_type = short.id)";

/// Proof that the ticket types of an order are locked.
#[derive(Debug)]
pub struct LockedTypes {
    order: OrderId,
    types: u64,
}

/// A way in which all seats of an order change hands at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// From held to sold.
    SellHeld,
    /// From free to sold.
    SellFree,
    /// From held to free.
    FreeHeld,
    /// From sold to free.
    FreeSold,
}

/// Reads a ticket type as it is seen now: holds that are over do not count.
pub async fn view(tx: &mut Tx<'_>, id: &str) -> Result<Option<TicketType>, OrdersError> {
    let params = params![id, tx.now()];
    tx.query_opt(VIEW, &params).await?.as_ref().map(read).transpose()
}

/// Locks a ticket type and reads its counters, swept or not. Lock several in the order of their ids.
pub async fn lock(tx: &mut Tx<'_>, id: &str) -> Result<Option<TicketType>, OrdersError> {
    tx.query_opt(LOCK, &params![id]).await?.as_ref().map(read).transpose()
}

/// Locks the ticket types of an order, in the order of their ids. Only who holds them may move its seats.
pub async fn lock_of_order(tx: &mut Tx<'_>, order: OrderId) -> Result<LockedTypes, OrdersError> {
    let types = tx.query(LOCK_OF_ORDER, &params![order.to_string()]).await?.len() as u64;
    Ok(LockedTypes { order, types })
}

/// Locks the ticket types of a tenant's order, likewise, and none for another tenant's.
pub async fn lock_of_order_of(tx: &mut Tx<'_>, tenant: &Tenant, order: OrderId) -> Result<LockedTypes, OrdersError> {
    let params = params![order.to_string(), tenant.as_str()];
    let types = tx.query(LOCK_OF_ORDER_OF, &params).await?.len() as u64;
    Ok(LockedTypes { order, types })
}

/// Locks the ticket types of a batch of orders, in the order of their ids.
pub async fn lock_of_orders(tx: &mut Tx<'_>, orders: &[OrderId]) -> Result<(), OrdersError> {
    let params: Vec<Value> = super::padded(orders, LAPSE_MAX).collect();
    tx.query(&LOCK_OF_ORDERS, &params).await?;
    Ok(())
}

/// Frees the held seats of a batch of orders whose ticket types are locked.
pub async fn free_held(tx: &mut Tx<'_>, orders: &[OrderId]) -> Result<(), OrdersError> {
    if orders.is_empty() {
        return Ok(());
    }
    let params: Vec<Value> = super::padded(orders, LAPSE_MAX).collect();
    tx.execute(&FREE_HELD_OF_ORDERS, &params).await?;
    Ok(())
}

/// Makes a ticket type; false when there is one of this name.
pub async fn insert(tx: &mut Tx<'_>, offer: &Offer) -> Result<bool, OrdersError> {
    Ok(tx.execute(INSERT, &written(offer)).await? == 1)
}

/// Changes a ticket type unless its capacity would fall below its counters; false when it would, or when there is none.
pub async fn update(tx: &mut Tx<'_>, offer: &Offer) -> Result<bool, OrdersError> {
    Ok(tx.execute(UPDATE, &written(offer)).await? == 1)
}

/// Locks ticket types in the order of their ids and reads their counters, swept or not. Those that do not exist are not among them.
pub async fn lock_all(tx: &mut Tx<'_>, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, TicketType>, OrdersError> {
    let rows: Vec<_> = ids.iter().map(|id| params![*id]).collect();
    let found = tx.query_rows(LOCK_ALL, &[], &rows).await?;
    found.iter().map(|row| read(row).map(|found| (found.id.clone(), found))).collect()
}

/// Holds free seats of locked ticket types.
pub async fn hold_all<'t>(tx: &mut Tx<'_>, taken: impl Iterator<Item = (&'t str, i64)>) -> Result<(), OrdersError> {
    let rows: Vec<_> = taken.map(|(id, quantity)| params![id, quantity]).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(HOLD_ALL, &[], &rows).await?)
}

/// Sells held seats of locked ticket types.
pub async fn sell_held<'t>(tx: &mut Tx<'_>, sold: impl Iterator<Item = (&'t str, i64)>) -> Result<(), OrdersError> {
    let rows: Vec<_> = sold.map(|(id, quantity)| params![id, quantity]).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(SELL_ALL_HELD, &[], &rows).await?)
}

/// Those of these ticket types that have seats counted as held whose hold is over.
pub async fn with_holds_over(tx: &mut Tx<'_>, ids: BTreeSet<&str>) -> Result<BTreeSet<String>, OrdersError> {
    let (rows, now): (Vec<_>, _) = (ids.into_iter().map(|id| params![id]).collect(), params![tx.now()]);
    let over = tx.query_rows(WITH_HOLDS_OVER, &now, &rows).await?;
    over.iter().map(|row| Ok(row.get("id")?)).collect()
}

/// Moves all seats of an order at once.
pub async fn shift(tx: &mut Tx<'_>, locked: &LockedTypes, which: Move) -> Result<(), OrdersError> {
    let sql = match which {
        Move::SellHeld => SELL_HELD,
        Move::SellFree => SELL_FREE,
        Move::FreeHeld => FREE_HELD,
        Move::FreeSold => FREE_SOLD,
    };
    super::exactly(locked.types, tx.execute(sql, &params![locked.order.to_string()]).await?)
}

/// The ticket types of the order that have too few free seats for it, counting holds that are over as taken.
pub async fn short_of(tx: &mut Tx<'_>, locked: &LockedTypes) -> Result<Vec<String>, OrdersError> {
    let rows = tx.query(SHORT_OF, &params![locked.order.to_string()]).await?;
    rows.iter().map(|row| Ok(row.get("id")?)).collect()
}

/// Fails with [`OrdersError::HoldsOver`] when seats of this type are counted as held whose hold is over.
pub async fn sweep_first(tx: &mut Tx<'_>, id: &str) -> Result<(), OrdersError> {
    let params = params![id, tx.now()];
    match tx.query_opt(HAS_HOLD_OVER, &params).await? {
        Some(_) => Err(OrdersError::HoldsOver(id.to_owned())),
        None => Ok(()),
    }
}

fn written(offer: &Offer) -> Vec<Value> {
    let Offer { id, venue, name, price, capacity } = offer;
    params![id, venue, name, price.amount, price.currency.as_str(), *capacity]
}

fn read(row: &Row) -> Result<TicketType, OrdersError> {
    Ok(TicketType {
        id: row.get("id")?,
        venue: row.get("venue")?,
        name: row.get("name")?,
        price: super::money(row, "price")?,
        capacity: row.get("capacity")?,
        sold: row.get("sold")?,
        held: row.get("held")?,
    })
}
