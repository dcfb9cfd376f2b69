//! The statements: the last word of both databases, and the samples on the way.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    KeyRow, Ledger, OperationRow, OrderRow, PaymentRow, RefundRow, TypeRow,
    acquirer::Acquirer,
    database::{Database, Row},
};
use crate::{
    checker::derive,
    edge::{DatabaseOf, Edge},
    history::{StockSample, TokenSample, TokenStore, TypeSample},
};

/// Questions to the sandbox side by side.
const SIDE_BY_SIDE: usize = 16;

const KEYS_POSTGRES: &[&str] = &["\
SELECT scope::text, key::text, operation_id::text, fencing_token, state, attempts, response_status, response_body
  FROM idem_keys
 ORDER BY scope, key"];

const KEYS_SQLITE: &[&str] = &["\
SELECT scope, key, operation_id, fencing_token, state, attempts, response_status, response_body
  FROM idem_keys
 ORDER BY scope, key"];

/// One text for both: the tables have the same columns.
const ORDERS: &[&str] = &[
    "SELECT id, tenant, kind, token, answered_token, label FROM operations ORDER BY id",
    "SELECT id, capacity, sold, held FROM ticket_types ORDER BY id",
    "SELECT id, tenant, venue, status, total, currency, paid_by FROM orders ORDER BY id",
    "SELECT order_id, ticket_type, quantity, unit_price FROM order_items ORDER BY order_id, position",
    "SELECT order_id, id, used_at FROM tickets ORDER BY order_id, position",
    "SELECT id, operation_id, tenant, order_id, amount, currency, status, next_ask_at FROM payments ORDER BY id",
    "SELECT id, payment_id, amount, acknowledged_at FROM refunds ORDER BY id",
    "SELECT id FROM acquirer_events ORDER BY id",
];

const OPEN_KEYS_POSTGRES: &[&str] = &["\
SELECT scope::text, key::text, operation_id::text, state
  FROM idem_keys
 WHERE state IN ('in_progress', 'in_doubt')"];

const OPEN_KEYS_SQLITE: &[&str] = &["\
SELECT scope, key, operation_id, state
  FROM idem_keys
 WHERE state IN ('in_progress', 'in_doubt')"];

const OPEN_ORDERS: &[&str] = &[
    "SELECT id, status FROM payments WHERE status IN ('started', 'pending', 'closed')",
    "SELECT payment_id FROM refunds WHERE acknowledged_at IS NULL",
];

const STOCK: &[&str] = &["SELECT id, capacity, sold, held FROM ticket_types ORDER BY id"];

/// The sums are counted over the orders themselves, in the same transaction.
const STOCK_AND_ORDERS: &[&str] = &[
    STOCK[0],
    "\
SELECT i.ticket_type, o.status, CAST(sum(i.quantity) AS BIGINT)
  FROM orders o
  JOIN order_items i ON i.order_id = o.id
 WHERE o.status IN ('paid', 'pending')
 GROUP BY i.ticket_type, o.status",
];

const KEY_TOKENS_POSTGRES: &[&str] =
    &["SELECT scope::text, key::text, operation_id::text, fencing_token, state FROM idem_keys"];
const KEY_TOKENS_SQLITE: &[&str] = &["SELECT scope, key, operation_id, fencing_token, state FROM idem_keys"];
const OPERATION_TOKENS: &[&str] = &["SELECT id, token, label FROM operations"];

/// Reads the whole ledger.
pub struct Reader<'e> {
    edge: &'e Edge,
    database: Database,
}

impl<'e> Reader<'e> {
    /// For the stores and the sandbox of a campaign.
    pub fn new(edge: &'e Edge) -> Self {
        Self { edge, database: Database::new(edge.store.clone()) }
    }

    /// Everything. The caller waits until nothing moves: the databases are two, and the acquirer is a third.
    pub async fn ledger(&mut self) -> anyhow::Result<Ledger> {
        let mut ledger = Ledger { read_ms: self.edge.clock.now_ms(), keys: self.keys().await?, ..Ledger::default() };
        self.orders(&mut ledger).await?;
        let acquirer = Acquirer::new(self.edge.sandbox)?;
        ledger.totals = acquirer.totals().await?;
        // Every payment id that an operation could have charged: whatever else was charged shows in the totals.
        let others: BTreeSet<&str> =
            ledger.operations.iter().filter(|it| it.kind.as_deref() != Some("pay")).map(|it| it.id.as_str()).collect();
        let payers = ledger.keys.iter().filter(|key| !others.contains(key.operation.as_str()));
        let mut ids: Vec<String> = payers.filter_map(|key| derive::payment(&key.operation)).collect();
        ids.extend(ledger.payments.iter().map(|payment| payment.id.clone()));
        ids.sort_unstable();
        ids.dedup();
        let acquirer = &acquirer;
        ledger.acquirer = stream::iter(ids)
            .map(|id| async move { anyhow::Ok(acquirer.payment(&id).await?.map(|payment| (id, payment))) })
            .buffer_unordered(SIDE_BY_SIDE)
            .try_filter_map(|found| async move { Ok(found) })
            .try_collect()
            .await?;
        Ok(ledger)
    }

    /// The keys alone.
    pub async fn keys(&mut self) -> anyhow::Result<Vec<KeyRow>> {
        let statements = if self.database.is_postgres() { KEYS_POSTGRES } else { KEYS_SQLITE };
        let mut answers = self.database.read(DatabaseOf::Idem, statements).await?;
        rows(&mut answers, key)
    }

    /// What is still to be settled, but for payments that the acquirer has not decided.
    pub async fn open(&mut self) -> anyhow::Result<Vec<String>> {
        let statements = if self.database.is_postgres() { OPEN_KEYS_POSTGRES } else { OPEN_KEYS_SQLITE };
        let mut answers = self.database.read(DatabaseOf::Idem, statements).await?;
        let keys = rows(&mut answers, |row| Ok((row.text()?, row.text()?, row.text()?, row.text()?)))?;
        let mut answers = self.database.read(DatabaseOf::Orders, OPEN_ORDERS).await?;
        let refunds = rows(&mut answers, Row::text)?;
        let payments = rows(&mut answers, |row| Ok((row.text()?, row.text()?)))?;
        let acquirer = Acquirer::new(self.edge.sandbox)?;
        let mut open: Vec<String> = refunds.iter().map(|payment| format!("refund of payment {payment}")).collect();
        for (scope, key, operation, state) in keys {
            let payment = match derive::payment(&operation) {
                Some(id) => acquirer.payment(&id).await?,
                None => None,
            };
            if payment.is_none_or(|payment| payment.status != "pending") {
                open.push(format!("key {scope} {key} is {state}"));
            }
        }
        for (id, status) in payments {
            let there = acquirer.payment(&id).await?;
            let is_waited_for = match there.as_ref().map(|payment| payment.status.as_str()) {
                Some("pending") => false,
                Some(_) => true,
                None => status != "closed",
            };
            if is_waited_for {
                open.push(format!("payment {id} is {status} here and {there:?} at the acquirer"));
            }
        }
        Ok(open)
    }

    async fn orders(&mut self, ledger: &mut Ledger) -> anyhow::Result<()> {
        let mut answers = self.database.read(DatabaseOf::Orders, ORDERS).await?;
        // From the last statement to the first.
        ledger.events = rows(&mut answers, Row::text)?;
        ledger.refunds = rows(&mut answers, refund)?;
        ledger.payments = rows(&mut answers, payment)?;
        let tickets = rows(&mut answers, |row| Ok((row.text()?, (row.text()?, row.maybe_number()?))))?;
        let items = rows(&mut answers, |row| Ok((row.text()?, (row.text()?, row.number()?, row.number()?))))?;
        ledger.orders = rows(&mut answers, order)?;
        ledger.ticket_types = rows(&mut answers, ticket_type)?;
        ledger.operations = rows(&mut answers, operation)?;
        let (mut tickets, mut items) = (grouped(tickets), grouped(items));
        for order in &mut ledger.orders {
            order.tickets = tickets.remove(&order.id).unwrap_or_default();
            order.items = items.remove(&order.id).unwrap_or_default();
        }
        Ok(())
    }
}

/// The stock now; with `orders`, also what the orders themselves add up to.
pub async fn stock(database: &mut Database, ms: u64, orders: bool) -> anyhow::Result<StockSample> {
    let statements = if orders { STOCK_AND_ORDERS } else { STOCK };
    let mut answers = database.read(DatabaseOf::Orders, statements).await?;
    let mut sums = BTreeMap::<String, (i64, i64)>::new();
    if orders {
        for (ticket_type, status, seats) in rows(&mut answers, |row| Ok((row.text()?, row.text()?, row.number()?)))? {
            let (paid, pending) = sums.entry(ticket_type).or_default();
            *(if status == "paid" { paid } else { pending }) += seats;
        }
    }
    let types = rows(&mut answers, ticket_type)?;
    let sample = |it: TypeRow| TypeSample {
        orders: orders.then(|| sums.get(&it.id).copied().unwrap_or_default()),
        id: it.id,
        capacity: it.capacity,
        sold: it.sold,
        held: it.held,
    };
    Ok(StockSample { ms, types: types.into_iter().map(sample).collect() })
}

/// Every fencing token of one database now.
pub async fn tokens(database: &mut Database, ms: u64, store: TokenStore) -> anyhow::Result<Vec<TokenSample>> {
    let (of, statements) = match (store, database.is_postgres()) {
        (TokenStore::Idem, true) => (DatabaseOf::Idem, KEY_TOKENS_POSTGRES),
        (TokenStore::Idem, false) => (DatabaseOf::Idem, KEY_TOKENS_SQLITE),
        (TokenStore::Orders, _) => (DatabaseOf::Orders, OPERATION_TOKENS),
    };
    let mut answers = database.read(of, statements).await?;
    rows(&mut answers, |row| {
        let name = row.text()?;
        Ok(match store {
            TokenStore::Idem => TokenSample {
                ms,
                store,
                name: format!("{name} {}", row.text()?),
                operation: row.text()?,
                token: row.number()?,
                state: row.text()?,
            },
            TokenStore::Orders => TokenSample {
                ms,
                store,
                operation: name.clone(),
                name,
                token: row.number()?,
                state: row.maybe_text()?.unwrap_or_default(),
            },
        })
    })
}

/// The rows of the last statement that has not been looked at.
fn rows<T>(answers: &mut Vec<Vec<Row>>, read: impl Fn(&mut Row) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    answers.pop().unwrap_or_default().iter_mut().map(read).collect()
}

fn grouped<T>(pairs: Vec<(String, T)>) -> BTreeMap<String, Vec<T>> {
    let mut groups = BTreeMap::<String, Vec<T>>::new();
    for (name, value) in pairs {
        groups.entry(name).or_default().push(value);
    }
    groups
}

fn key(row: &mut Row) -> anyhow::Result<KeyRow> {
    Ok(KeyRow {
        scope: row.text()?,
        key: row.text()?,
        operation: row.text()?,
        token: row.number()?,
        state: row.text()?,
        attempts: row.number()?,
        status: row.maybe_number()?,
        body: row.maybe_text()?,
    })
}

fn operation(row: &mut Row) -> anyhow::Result<OperationRow> {
    Ok(OperationRow {
        id: row.text()?,
        tenant: row.maybe_text()?,
        kind: row.maybe_text()?,
        token: row.number()?,
        answered_token: row.maybe_number()?,
        label: row.maybe_text()?,
    })
}

fn ticket_type(row: &mut Row) -> anyhow::Result<TypeRow> {
    Ok(TypeRow { id: row.text()?, capacity: row.number()?, sold: row.number()?, held: row.number()? })
}

fn order(row: &mut Row) -> anyhow::Result<OrderRow> {
    Ok(OrderRow {
        id: row.text()?,
        tenant: row.text()?,
        venue: row.text()?,
        status: row.text()?,
        total: row.number()?,
        currency: row.text()?,
        paid_by: row.maybe_text()?,
        items: Vec::new(),
        tickets: Vec::new(),
    })
}

fn payment(row: &mut Row) -> anyhow::Result<PaymentRow> {
    Ok(PaymentRow {
        id: row.text()?,
        operation: row.text()?,
        tenant: row.text()?,
        order: row.text()?,
        amount: row.number()?,
        currency: row.text()?,
        status: row.text()?,
        is_watched: row.maybe_number()?.is_some(),
    })
}

fn refund(row: &mut Row) -> anyhow::Result<RefundRow> {
    Ok(RefundRow {
        id: row.text()?,
        payment: row.text()?,
        amount: row.number()?,
        is_acknowledged: row.maybe_number()?.is_some(),
    })
}
