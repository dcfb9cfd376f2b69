//! Payments, and the watch over every payment id that was sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use database::{Row, Tx, params};

use crate::{
    error::OrdersError,
    money::Money,
    operation_id::{OperationId, OrderId, PaymentId, Tenant},
    payment::{Payment, PaymentStatus},
    timestamp::Timestamp,
};

/// A payment's own row.
#[derive(Clone, Debug)]
pub struct PaymentRow {
    /// Its name, here and at the acquirer.
    pub id: PaymentId,
    /// The operation that made it.
    pub operation: OperationId,
    /// Whose it is.
    pub tenant: String,
    /// What it pays.
    pub order: OrderId,
    /// How much.
    pub amount: Money,
    /// Token of the payment method.
    pub method: String,
    /// Where it stands.
    pub status: PaymentStatus,
    /// When it was given up.
    pub closed_at: Option<Timestamp>,
    /// When the acquirer is next asked; none when it need not be any more.
    pub next_ask_at: Option<Timestamp>,
    /// How often the watch has asked since the interval last began anew.
    pub asks: u32,
    /// What was last learnt, if it did not decide the payment.
    pub last_word: Option<LastWord>,
}

/// What was last learnt about an undecided payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// The acquirer has it and has not decided.
    Pending,
    /// The acquirer did not know it.
    NotFound,
    /// The acquirer has something else under its id.
    Mismatch,
    /// The acquirer could not be asked.
    Unreachable,
}

const FIND: &str = "\
-- orders.payment_find
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE id = $1";

const FIND_OF: &str = "\
-- orders.payment_find_of
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE id = $1
   AND tenant = $2";

const FIND_ALL: &str = "\
-- orders.payments_find
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE id IN ({rows})";

const LOCK: &str = "\
-- orders.payment_lock
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE id = $1
   FOR UPDATE";

// The locks are taken above the sort, so in the order of the ids.
const LOCK_ALL: &str = "\
-- orders.payments_lock
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE id IN ({rows})
 ORDER BY id
   FOR UPDATE";

const HAS_OPEN: &str = "\
-- orders.payment_has_open
SELECT id
  FROM payments
 WHERE order_id = $1
   AND status IN ('started', 'pending')
 LIMIT 1";

const START_ALL: &str = "\
-- orders.payments_start
INSERT INTO payments (id, operation_id, tenant, order_id, amount, currency, method, created_at, next_ask_at, status)
{rows}";

// Questions of their own for each row: joined, Postgres would go through the index of all that is open.
const IN_THE_WAY: &str = "\
-- orders.payments_in_the_way
  WITH wanted (id, order_id) AS ({rows})
SELECT (SELECT p.id
          FROM payments p
         WHERE p.id = wanted.id) AS known,
       (SELECT p.order_id
          FROM payments p
         WHERE p.order_id = wanted.order_id
           AND p.status IN ('started', 'pending')) AS taken
  FROM wanted";

const REOPEN: &str = "\
-- orders.payment_reopen
UPDATE payments
   SET status = 'started', closed_at = NULL, next_ask_at = $2, asks = 0, last_word = NULL
 WHERE id = $1
   AND status = 'closed'";

const CLOSE: &str = "\
-- orders.payment_close
UPDATE payments
   SET status = 'closed', closed_at = $2, next_ask_at = $3, asks = 0, last_word = 'not_found'
 WHERE id = $1
   AND status IN ('started', 'pending')";

const MARK_PENDING: &str = "\
-- orders.payment_mark_pending
UPDATE payments
   SET status = 'pending', last_word = 'pending', next_ask_at = $2, asks = 0
 WHERE id = $1
   AND status = 'started'";

const DECIDE: &str = "\
-- orders.payment_decide
UPDATE payments
   SET status = $3, next_ask_at = NULL
 WHERE id = $1
   AND status = $2";

// The status travels with each row: written out it would lead Postgres through the index of all that is open.
const DECIDE_ALL: &str = "\
-- orders.payments_decide
  WITH decided (id, was, status) AS ({rows})
UPDATE payments
   SET status = decided.status, next_ask_at = NULL
  FROM decided
 WHERE payments.id = decided.id
   AND payments.status = decided.was";

const NOTE: &str = "\
-- orders.payment_note
UPDATE payments
   SET last_word = $2
 WHERE id = $1
   AND status IN ('started', 'pending', 'closed')";

const WATCH_ANEW: &str = "\
-- orders.payment_watch_anew
UPDATE payments
   SET next_ask_at = $2, asks = 0
 WHERE id = $1
   AND status IN ('started', 'pending')";

const DUE: &str = "\
-- orders.payments_due
SELECT id, operation_id, tenant, order_id, amount, currency, method, status, closed_at, next_ask_at, asks, last_word
  FROM payments
 WHERE next_ask_at <= $1
 ORDER BY next_ask_at
 LIMIT $2";

const CLAIM: &str = "\
-- orders.payment_claim
UPDATE payments
   SET next_ask_at = $3, asks = asks + 1
 WHERE id = $1
   AND next_ask_at = $2
   AND next_ask_at <= $4
   AND status IN ('started', 'pending', 'closed')";

/// Reads a payment without locking it.
pub async fn find(tx: &mut Tx<'_>, id: PaymentId) -> Result<Option<PaymentRow>, OrdersError> {
    tx.query_opt(FIND, &params![id.to_string()]).await?.as_ref().map(read).transpose()
}

/// Reads a payment of a tenant without locking it; another tenant's is not there.
pub async fn find_of(tx: &mut Tx<'_>, tenant: &Tenant, id: PaymentId) -> Result<Option<PaymentRow>, OrdersError> {
    let params = params![id.to_string(), tenant.as_str()];
    tx.query_opt(FIND_OF, &params).await?.as_ref().map(read).transpose()
}

/// Reads payments without locking them. Those that do not exist are not among them.
pub async fn find_all(
    tx: &mut Tx<'_>,
    ids: &BTreeSet<PaymentId>,
) -> Result<BTreeMap<PaymentId, PaymentRow>, OrdersError> {
    read_all(tx, FIND_ALL, ids).await
}

/// Locks a payment; its operation and order are locked before, when they are to change.
pub async fn lock(tx: &mut Tx<'_>, id: PaymentId) -> Result<PaymentRow, OrdersError> {
    let row = tx.query_opt(LOCK, &params![id.to_string()]).await?;
    read(&row.ok_or(OrdersError::Corrupt("a payment is gone"))?)
}

/// Locks payments in the order of their ids, likewise. Those that do not exist are not among them.
pub async fn lock_all(
    tx: &mut Tx<'_>,
    ids: &BTreeSet<PaymentId>,
) -> Result<BTreeMap<PaymentId, PaymentRow>, OrdersError> {
    read_all(tx, LOCK_ALL, ids).await
}

/// Is a payment of this order undecided? Certain while the order is locked.
pub async fn has_open(tx: &mut Tx<'_>, order: OrderId) -> Result<bool, OrdersError> {
    Ok(tx.query_opt(HAS_OPEN, &params![order.to_string()]).await?.is_some())
}

/// Which of these payments are there, and which of these orders have an undecided one. Certain while operations and orders are locked.
pub async fn in_the_way(
    tx: &mut Tx<'_>,
    wanted: impl Iterator<Item = (PaymentId, OrderId)>,
) -> Result<(BTreeSet<PaymentId>, BTreeSet<OrderId>), OrdersError> {
    let rows: Vec<_> = wanted.map(|(id, order)| params![id.to_string(), order.to_string()]).collect();
    let (mut known, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for row in tx.query_rows(IN_THE_WAY, &[], &rows).await? {
        known.extend(optional_id(&row, "known", PaymentId::parse)?);
        taken.extend(optional_id(&row, "taken", OrderId::parse)?);
    }
    Ok((known, taken))
}

/// Records a payment before it is sent, and puts it on the watch.
pub async fn start(tx: &mut Tx<'_>, row: &PaymentRow) -> Result<(), OrdersError> {
    start_all(tx, std::slice::from_ref(row)).await
}

/// Records payments before they are sent, and puts them on the watch.
pub async fn start_all(tx: &mut Tx<'_>, payments: &[PaymentRow]) -> Result<(), OrdersError> {
    let now = tx.now();
    let row = |row: &PaymentRow| {
        params![
            row.id.to_string(),
            row.operation.to_string(),
            &row.tenant,
            row.order.to_string(),
            row.amount.amount,
            row.amount.currency.as_str(),
            &row.method,
            now,
            row.next_ask_at.map(|at| at.0),
            PaymentStatus::Started.as_str(),
        ]
    };
    let rows: Vec<_> = payments.iter().map(row).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(START_ALL, &[], &rows).await?)
}

/// Opens a payment again that had been given up.
pub async fn reopen(tx: &mut Tx<'_>, id: PaymentId, ask_after: Duration) -> Result<(), OrdersError> {
    let params = params![id.to_string(), Timestamp(tx.now()).plus(ask_after).0];
    super::exactly(1, tx.execute(REOPEN, &params).await?)
}

/// Gives up a locked open payment; it stays on the watch.
pub async fn close(tx: &mut Tx<'_>, id: PaymentId, ask_after: Duration) -> Result<(), OrdersError> {
    let params = params![id.to_string(), tx.now(), Timestamp(tx.now()).plus(ask_after).0];
    super::exactly(1, tx.execute(CLOSE, &params).await?)
}

/// The acquirer has it and has not decided: ask again soon, then ever more seldom.
pub async fn mark_pending(tx: &mut Tx<'_>, row: &mut PaymentRow, ask_after: Duration) -> Result<(), OrdersError> {
    let params = params![row.id.to_string(), Timestamp(tx.now()).plus(ask_after).0];
    super::exactly(1, tx.execute(MARK_PENDING, &params).await?)?;
    row.status = PaymentStatus::Pending;
    Ok(())
}

/// Decides a locked payment, or moves a decided one on; the watch over it ends.
pub async fn decide(tx: &mut Tx<'_>, row: &mut PaymentRow, to: PaymentStatus) -> Result<(), OrdersError> {
    let params = params![row.id.to_string(), row.status.as_str(), to.as_str()];
    super::exactly(1, tx.execute(DECIDE, &params).await?)?;
    row.status = to;
    Ok(())
}

/// Decides locked payments, each of which stands where it says, alike; the watch over them ends.
pub async fn decide_all(
    tx: &mut Tx<'_>,
    payments: impl Iterator<Item = (PaymentId, PaymentStatus)>,
    to: PaymentStatus,
) -> Result<(), OrdersError> {
    let rows: Vec<_> = payments.map(|(id, was)| params![id.to_string(), was.as_str(), to.as_str()]).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(DECIDE_ALL, &[], &rows).await?)
}

/// Notes what was learnt about an undecided payment; a decided one is left alone.
pub async fn note(tx: &mut Tx<'_>, id: PaymentId, word: LastWord) -> Result<(), OrdersError> {
    tx.execute(NOTE, &params![id.to_string(), word.as_str()]).await?;
    Ok(())
}

/// Begins the growing interval of an open payment anew.
pub async fn watch_anew(tx: &mut Tx<'_>, id: PaymentId, ask_after: Duration) -> Result<(), OrdersError> {
    let params = params![id.to_string(), Timestamp(tx.now()).plus(ask_after).0];
    tx.execute(WATCH_ANEW, &params).await?;
    Ok(())
}

/// Payments whose time to be asked for has come, the longest waiting first.
pub async fn due(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<PaymentRow>, OrdersError> {
    let params = params![tx.now(), limit];
    tx.query(DUE, &params).await?.iter().map(read).collect()
}

/// Takes the turn to ask for a payment and sets the next; false when another replica was faster or it is not due.
pub async fn claim(tx: &mut Tx<'_>, row: &PaymentRow, next: Option<Timestamp>) -> Result<bool, OrdersError> {
    let seen = row.next_ask_at.map(|at| at.0);
    let params = params![row.id.to_string(), seen, next.map(|at| at.0), tx.now()];
    Ok(tx.execute(CLAIM, &params).await? == 1)
}

impl PaymentRow {
    /// The payment as its owner sees it.
    pub fn view(&self) -> Payment {
        Payment { id: self.id, order: self.order, status: self.status, amount: self.amount.clone() }
    }
}

impl LastWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::NotFound => "not_found",
            Self::Mismatch => "mismatch",
            Self::Unreachable => "unreachable",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let all = [Self::Pending, Self::NotFound, Self::Mismatch, Self::Unreachable];
        all.into_iter().find(|known| known.as_str() == word)
    }
}

async fn read_all(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &BTreeSet<PaymentId>,
) -> Result<BTreeMap<PaymentId, PaymentRow>, OrdersError> {
    let rows: Vec<_> = ids.iter().map(|id| params![id.to_string()]).collect();
    let found = tx.query_rows(sql, &[], &rows).await?;
    found.iter().map(|row| read(row).map(|found| (found.id, found))).collect()
}

fn read(row: &Row) -> Result<PaymentRow, OrdersError> {
    let last_word = row.get::<Option<String>>("last_word")?;
    let last_word =
        last_word.map(|word| LastWord::parse(&word).ok_or(OrdersError::Corrupt("last word"))).transpose()?;
    Ok(PaymentRow {
        id: super::id(row, "id", PaymentId::parse)?,
        operation: super::id(row, "operation_id", OperationId::parse)?,
        tenant: row.get("tenant")?,
        order: super::id(row, "order_id", OrderId::parse)?,
        amount: super::money(row, "amount")?,
        method: row.get("method")?,
        status: status(row)?,
        closed_at: row.get::<Option<i64>>("closed_at")?.map(Timestamp),
        next_ask_at: row.get::<Option<i64>>("next_ask_at")?.map(Timestamp),
        asks: row.get("asks")?,
        last_word,
    })
}

fn optional_id<T>(row: &Row, column: &'static str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, OrdersError> {
    let text = row.get::<Option<String>>(column)?;
    text.map(|text| parse(&text).ok_or(OrdersError::Corrupt(column))).transpose()
}

fn status(row: &Row) -> Result<PaymentStatus, OrdersError> {
    PaymentStatus::parse(&row.get::<String>("status")?).ok_or(OrdersError::Corrupt("payment status"))
}
