//! Ticket types and their stock.

use crate::money::Money;

/// Above this a capacity is a mistake.
pub const CAPACITY_MAX: i64 = 1_000_000_000;

/// A kind of ticket, with its stock as it is seen: holds that are over do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketType {
    /// Its name, chosen by the operator.
    pub id: String,
    /// Where it lets in.
    pub venue: String,
    /// What it is called.
    pub name: String,
    /// Price of one seat.
    pub price: Money,
    /// How many seats there are.
    pub capacity: i64,
    /// Seats of paid orders.
    pub sold: i64,
    /// Seats of live holds.
    pub held: i64,
}

/// What an operator writes of a ticket type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name.
    pub id: String,
    /// Where it lets in.
    pub venue: String,
    /// What it is called.
    pub name: String,
    /// Price of one seat, for orders to come.
    pub price: Money,
    /// How many seats there are.
    pub capacity: i64,
}

/// Seats of one ticket type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seats {
    /// The ticket type.
    pub ticket_type: String,
    /// How many.
    pub quantity: u32,
}
