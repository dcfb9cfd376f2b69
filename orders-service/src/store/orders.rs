//! Orders with their items, and their tickets as they are placed and shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use database::{Row, Tx, params};

use crate::{
    error::OrdersError,
    money::Money,
    operation_id::{OrderId, PaymentId, Tenant, TicketId},
    order::{Hold, Item, Order, OrderStatus, Ticket},
    timestamp::Timestamp,
};

/// An order's own row.
#[derive(Clone, Debug)]
pub struct OrderRow {
    /// Its name.
    pub id: OrderId,
    /// Whose it is.
    pub tenant: String,
    /// The venue of all its types.
    pub venue: String,
    /// As stored: a lapsed hold may still say pending.
    pub status: OrderStatus,
    /// What it costs.
    pub total: Money,
    /// When it was placed.
    pub created_at: Timestamp,
    /// When the hold ends, unless a payment is undecided then.
    pub hold_expires_at: Timestamp,
    /// When the seats are free again.
    pub hold_until: Timestamp,
    /// The payment that paid it, if one did.
    pub paid_by: Option<PaymentId>,
}

const FIND: &str = "\
-- orders.order_find
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE id = $1";

const LOCK: &str = "\
-- orders.order_lock
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE id = $1
   FOR UPDATE";

// Whose it is stands in the statement: nobody waits for another tenant's row, holds it, or takes longer because it is there.
const FIND_OF: &str = "\
-- orders.order_find_of
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE id = $1
   AND tenant = $2";

const LOCK_OF: &str = "\
-- orders.order_lock_of
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE id = $1
   AND tenant = $2
   FOR UPDATE";

// The locks are taken above the sort, so in the order of the ids.
const LOCK_ALL: &str = "\
-- orders.orders_lock
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE id IN ({rows})
 ORDER BY id
   FOR UPDATE";

const LOCK_ALL_OF: &str = "\
-- orders.orders_lock_of
SELECT id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until, paid_by
  FROM orders
 WHERE (id, tenant) IN ({rows})
 ORDER BY id
   FOR UPDATE";

const INSERT_ORDERS: &str = "\
-- orders.orders_insert
INSERT INTO orders (id, tenant, venue, status, total, currency, created_at, hold_expires_at, hold_until)
{rows}";

const INSERT_ITEMS: &str = "\
-- orders.order_items_insert
INSERT INTO order_items (order_id, position, ticket_type, quantity, unit_price)
{rows}";

const INSERT_TICKETS: &str = "\
-- orders.tickets_insert
INSERT INTO tickets (id, order_id, position, ticket_type)
{rows}";

const ITEMS: &str = "\
-- orders.order_items
SELECT i.ticket_type, i.quantity, i.unit_price, o.currency
  FROM order_items i
  JOIN orders o ON o.id = i.order_id
 WHERE i.order_id = $1
 ORDER BY i.position";

const SEATS: &str = "\
-- orders.orders_seats
SELECT order_id, ticket_type, quantity
  FROM order_items
 WHERE order_id IN ({rows})";

const TICKETS: &str = "\
-- orders.order_tickets
SELECT id, ticket_type, used_at
  FROM tickets
 WHERE order_id = $1
 ORDER BY position";

const MOVE: &str = "\
-- orders.order_move
UPDATE orders
   SET status = $3, paid_by = COALESCE($4, paid_by)
 WHERE id = $1
   AND status = $2";

// The status travels with each row: written out it would lead Postgres through the index of all that is pending.
const MOVE_ALL: &str = "\
-- orders.orders_move
  WITH moving (id, was, status, paid_by) AS ({rows})
UPDATE orders
   SET status = moving.status, paid_by = moving.paid_by
  FROM moving
 WHERE orders.id = moving.id
   AND orders.status = moving.was";

const HOLD_UNTIL: &str = "\
-- orders.order_hold_until
UPDATE orders
   SET hold_until = hold_expires_at + $2
 WHERE id = $1";

const HOLD_ALL_UNTIL: &str = "\
-- orders.orders_hold_until
  WITH paying (id) AS ({rows})
UPDATE orders
   SET hold_until = hold_expires_at + $1
  FROM paying
 WHERE orders.id = paying.id";

static LAPSE: LazyLock<String> = LazyLock::new(|| {
    let ids = super::places(2, LAPSE_MAX);
    format!(
        "\
-- orders.orders_lapse
UPDATE orders
   SET status = 'expired'
 WHERE id IN ({ids})
   AND status = 'pending'
   AND hold_until <= $1
RETURNING id"
    )
});

const REFUNDED: &str = "\
-- orders.order_refunded
UPDATE orders
   SET status = 'refunded'
 WHERE id = $1
   AND status = 'refund_pending'
   AND paid_by = $2";

const OVER: &str = "\
-- orders.orders_over
SELECT id
  FROM orders
 WHERE status = 'pending'
   AND hold_until <= $1
 ORDER BY hold_until
 LIMIT $2";

const OVER_OF_TYPE: &str = "\
-- orders.orders_over_of_type
SELECT o.id
  FROM orders o
  JOIN order_items i ON i.order_id = o.id
 WHERE o.status = 'pending'
   AND o.hold_until <= $1
   AND i.ticket_type = $3
 ORDER BY o.hold_until
 LIMIT $2";

/// Orders that lapse in one transaction at most: enough to be quick, few enough to hold their ticket types only for a moment.
pub const LAPSE_MAX: usize = 32;

/// Reads an order without locking it.
pub async fn find(tx: &mut Tx<'_>, id: OrderId) -> Result<Option<OrderRow>, OrdersError> {
    tx.query_opt(FIND, &params![id.to_string()]).await?.as_ref().map(read).transpose()
}

/// Locks an order; its ticket types are locked before, when seats are to move.
pub async fn lock(tx: &mut Tx<'_>, id: OrderId) -> Result<Option<OrderRow>, OrdersError> {
    tx.query_opt(LOCK, &params![id.to_string()]).await?.as_ref().map(read).transpose()
}

/// Reads an order of a tenant without locking it; another tenant's is not there.
pub async fn find_of(tx: &mut Tx<'_>, tenant: &Tenant, id: OrderId) -> Result<Option<OrderRow>, OrdersError> {
    let params = params![id.to_string(), tenant.as_str()];
    tx.query_opt(FIND_OF, &params).await?.as_ref().map(read).transpose()
}

/// Locks an order of a tenant, likewise.
pub async fn lock_of(tx: &mut Tx<'_>, tenant: &Tenant, id: OrderId) -> Result<Option<OrderRow>, OrdersError> {
    let params = params![id.to_string(), tenant.as_str()];
    tx.query_opt(LOCK_OF, &params).await?.as_ref().map(read).transpose()
}

/// Locks orders in the order of their ids. Those that do not exist are not among them.
pub async fn lock_all(tx: &mut Tx<'_>, ids: &BTreeSet<OrderId>) -> Result<BTreeMap<OrderId, OrderRow>, OrdersError> {
    let rows: Vec<_> = ids.iter().map(|id| params![id.to_string()]).collect();
    by_id(&tx.query_rows(LOCK_ALL, &[], &rows).await?)
}

/// Locks orders, each of the tenant who asks for it, in the order of their ids. Other tenants' are not among them.
pub async fn lock_all_of<'a>(
    tx: &mut Tx<'_>,
    asked: impl Iterator<Item = (OrderId, &'a Tenant)>,
) -> Result<BTreeMap<OrderId, OrderRow>, OrdersError> {
    let rows: Vec<_> = asked.map(|(id, tenant)| params![id.to_string(), tenant.as_str()]).collect();
    by_id(&tx.query_rows(LOCK_ALL_OF, &[], &rows).await?)
}

fn by_id(found: &[Row]) -> Result<BTreeMap<OrderId, OrderRow>, OrdersError> {
    found.iter().map(|row| read(row).map(|found| (found.id, found))).collect()
}

/// Writes new orders, each of a tenant, with their items and one ticket a seat.
pub async fn insert_all(tx: &mut Tx<'_>, placed: &[(&str, Order)]) -> Result<(), OrdersError> {
    let (mut orders, mut items, mut tickets) = (Vec::with_capacity(placed.len()), Vec::new(), Vec::new());
    for (tenant, order) in placed {
        let (id, until) = (order.id.to_string(), order.hold_expires_at.0);
        let (status, total, currency) = (order.status.as_str(), order.total.amount, order.total.currency.as_str());
        for (item, position) in order.items.iter().zip(0u32..) {
            items.push(params![&id, position, &item.ticket_type, item.quantity, item.unit_price.amount]);
        }
        for (ticket, position) in order.tickets.iter().zip(0u32..) {
            tickets.push(params![ticket.id.to_string(), &id, position, &ticket.ticket_type]);
        }
        orders.push(params![id, *tenant, &order.venue, status, total, currency, order.created_at.0, until, until]);
    }
    for (sql, rows) in [(INSERT_ORDERS, orders), (INSERT_ITEMS, items), (INSERT_TICKETS, tickets)] {
        super::exactly(rows.len() as u64, tx.execute_rows(sql, &[], &rows).await?)?;
    }
    Ok(())
}

/// Reads the whole of an order as it is now.
pub async fn view(tx: &mut Tx<'_>, row: OrderRow) -> Result<Order, OrdersError> {
    let status = row.status.seen(row.hold(tx.now()));
    let items = items(tx, row.id).await?;
    let tickets = tx.query(TICKETS, &params![row.id.to_string()]).await?;
    let tickets = tickets.iter().map(|ticket| {
        let is_used = ticket.get::<Option<i64>>("used_at")?.is_some();
        Ok(Ticket {
            id: super::id(ticket, "id", TicketId::parse)?,
            ticket_type: ticket.get("ticket_type")?,
            status: status.ticket(is_used),
        })
    });
    Ok(Order {
        tickets: tickets.collect::<Result<_, OrdersError>>()?,
        id: row.id,
        status,
        venue: row.venue,
        items,
        total: row.total,
        created_at: row.created_at,
        hold_expires_at: row.hold_expires_at,
    })
}

/// How many seats of which ticket types each of these orders has. Fixed when an order is placed, so no lock is needed.
pub async fn seats(
    tx: &mut Tx<'_>,
    ids: &BTreeSet<OrderId>,
) -> Result<BTreeMap<OrderId, Vec<(String, i64)>>, OrdersError> {
    let rows: Vec<_> = ids.iter().map(|id| params![id.to_string()]).collect();
    let mut seats = BTreeMap::<OrderId, Vec<_>>::new();
    for row in tx.query_rows(SEATS, &[], &rows).await? {
        let order = super::id(&row, "order_id", OrderId::parse)?;
        seats.entry(order).or_default().push((row.get("ticket_type")?, row.get("quantity")?));
    }
    Ok(seats)
}

/// Moves a locked order on; `paid_by` names the payment when one pays it.
pub async fn advance(
    tx: &mut Tx<'_>,
    row: &mut OrderRow,
    to: OrderStatus,
    paid_by: Option<PaymentId>,
) -> Result<(), OrdersError> {
    let params = params![row.id.to_string(), row.status.as_str(), to.as_str(), paid_by.map(|id| id.to_string())];
    super::exactly(1, tx.execute(MOVE, &params).await?)?;
    row.status = to;
    row.paid_by = paid_by.or(row.paid_by);
    Ok(())
}

/// Marks locked pending orders paid, each by its payment.
pub async fn pay_all(tx: &mut Tx<'_>, payments: impl Iterator<Item = (OrderId, PaymentId)>) -> Result<(), OrdersError> {
    let (was, status) = (OrderStatus::Pending.as_str(), OrderStatus::Paid.as_str());
    let row = |(id, payment): (OrderId, PaymentId)| params![id.to_string(), was, status, payment.to_string()];
    let rows: Vec<_> = payments.map(row).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(MOVE_ALL, &[], &rows).await?)
}

/// Sets how long after `hold_expires_at` the hold lives on: `--hold-ttl` while a payment is undecided, nothing otherwise.
pub async fn hold_on(tx: &mut Tx<'_>, id: OrderId, extra: std::time::Duration) -> Result<(), OrdersError> {
    let extra = Timestamp(0).plus(extra).0;
    super::exactly(1, tx.execute(HOLD_UNTIL, &params![id.to_string(), extra]).await?)
}

/// Sets the same for locked orders, each named once.
pub async fn hold_all_on(
    tx: &mut Tx<'_>,
    ids: impl Iterator<Item = OrderId>,
    extra: std::time::Duration,
) -> Result<(), OrdersError> {
    let rows: Vec<_> = ids.map(|id| params![id.to_string()]).collect();
    let extra = params![Timestamp(0).plus(extra).0];
    super::exactly(rows.len() as u64, tx.execute_rows(HOLD_ALL_UNTIL, &extra, &rows).await?)
}

/// Marks those of at most [`LAPSE_MAX`] orders expired that are pending and whose hold is over; returns which.
pub async fn lapse(tx: &mut Tx<'_>, ids: &[OrderId]) -> Result<Vec<OrderId>, OrdersError> {
    let mut params = params![tx.now()];
    params.extend(super::padded(ids, LAPSE_MAX));
    let rows = tx.query(&LAPSE, &params).await?;
    rows.iter().map(|row| super::id(row, "id", OrderId::parse)).collect()
}

/// Marks the order of a refunded payment refunded, if it was waiting for that.
pub async fn refunded(tx: &mut Tx<'_>, id: OrderId, payment: PaymentId) -> Result<(), OrdersError> {
    tx.execute(REFUNDED, &params![id.to_string(), payment.to_string()]).await?;
    Ok(())
}

/// Pending orders whose hold is over, those of one ticket type when one is named.
pub async fn over(tx: &mut Tx<'_>, ticket_type: Option<&str>, limit: u32) -> Result<Vec<OrderId>, OrdersError> {
    let rows = match ticket_type {
        None => tx.query(OVER, &params![tx.now(), limit]).await?,
        Some(ticket_type) => tx.query(OVER_OF_TYPE, &params![tx.now(), limit, ticket_type]).await?,
    };
    rows.iter().map(|row| super::id(row, "id", OrderId::parse)).collect()
}

impl OrderRow {
    /// Whether its seats are still promised at this moment of the store's clock.
    pub fn hold(&self, now: i64) -> Hold {
        if now < self.hold_until.0 { Hold::Live } else { Hold::Over }
    }
}

async fn items(tx: &mut Tx<'_>, id: OrderId) -> Result<Vec<Item>, OrdersError> {
    let rows = tx.query(ITEMS, &params![id.to_string()]).await?;
    let read = |row: &Row| {
        Ok(Item {
            ticket_type: row.get("ticket_type")?,
            quantity: row.get("quantity")?,
            unit_price: super::money(row, "unit_price")?,
        })
    };
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<OrderRow, OrdersError> {
    let paid_by = row.get::<Option<String>>("paid_by")?;
    let paid_by = paid_by.map(|text| PaymentId::parse(&text).ok_or(OrdersError::Corrupt("paid_by"))).transpose()?;
    Ok(OrderRow {
        id: super::id(row, "id", OrderId::parse)?,
        tenant: row.get("tenant")?,
        venue: row.get("venue")?,
        status: OrderStatus::parse(&row.get::<String>("status")?).ok_or(OrdersError::Corrupt("order status"))?,
        total: super::money(row, "total")?,
        created_at: Timestamp(row.get("created_at")?),
        hold_expires_at: Timestamp(row.get("hold_expires_at")?),
        hold_until: Timestamp(row.get("hold_until")?),
        paid_by,
    })
}
