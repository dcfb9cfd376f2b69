//! The rows of the orders service.
//!
//! Every statement is one text for both engines. What this service asks of its store fits the language that SQLite and Postgres share
//! (`ON CONFLICT`, `RETURNING`, `UPDATE … FROM`, partial indexes; `FOR UPDATE` is dropped where a transaction is alone anyway), so a
//! second dialect would only be a second place for the same bug. The two migration files differ in types alone.
//!
//! Locks are taken in one order everywhere, so that transactions wait for each other but never in a circle: event, operation, ticket
//! type, order, payment, and several of a kind in the order of their ids.

use database::{Migration, Row, Schema, Value};

use crate::{
    error::OrdersError,
    money::{Currency, Money},
    operation_id::OrderId,
};

pub mod due;
pub mod events;
pub mod operations;
pub mod orders;
pub mod payments;
pub mod refunds;
pub mod standing;
pub mod ticket_types;
pub mod tickets;

/// Every migration of this service.
pub const SCHEMA: Schema = Schema {
    name: "orders-service",
    migrations: &[Migration {
        number: 1,
        name: "first",
        sqlite: include_str!("../migrations/sqlite/0001_first.sql"),
        postgres: include_str!("../migrations/postgres/0001_first.sql"),
    }],
};

/// Reads an amount and its currency from the columns of these names.
fn money(row: &Row, amount: &'static str) -> Result<Money, OrdersError> {
    let currency = Currency::new(&row.get::<String>("currency")?).ok_or(OrdersError::Corrupt("a currency"))?;
    Ok(Money { amount: row.get(amount)?, currency })
}

/// Reads an id from a column.
fn id<T>(row: &Row, column: &'static str, parse: fn(&str) -> Option<T>) -> Result<T, OrdersError> {
    parse(&row.get::<String>(column)?).ok_or(OrdersError::Corrupt(column))
}

/// The placeholders of `count` parameters from `$first` on.
fn places(first: usize, count: usize) -> String {
    (first..first + count).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ")
}

/// Ids for a list of `width` placeholders: the last is repeated, so that lists of every length share one statement.
fn padded(ids: &[OrderId], width: usize) -> impl Iterator<Item = Value> {
    debug_assert!((1..=width).contains(&ids.len()), "a list fits its placeholders");
    let last = ids.last().copied();
    ids.iter()
        .copied()
        .chain(std::iter::repeat_with(move || last).flatten())
        .take(width)
        .map(|id| id.to_string().into())
}

/// A guarded write that must touch exactly what was locked and judged before.
fn exactly(expected: u64, touched: u64) -> Result<(), OrdersError> {
    if touched == expected { Ok(()) } else { Err(OrdersError::Corrupt("a locked row changed")) }
}
