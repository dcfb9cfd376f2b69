//! Which of several orders get their seats: first come, first served, without a look at the store.

use std::collections::BTreeMap;

use crate::{
    money::Money,
    order::Item,
    outcome::{Refusal, RefusalReason},
    place_order::PlaceOrder,
    stock::{Seats, TicketType},
};

/// The free seats of locked ticket types, and what is taken of them.
pub(crate) struct Stock<'t> {
    types: BTreeMap<&'t str, (&'t TicketType, i64)>,
}

/// What an order gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Allotted {
    /// All its seats, at today's prices.
    Held {
        /// In the buyer's sequence.
        items: Vec<Item>,
        /// Their sum.
        total: Money,
    },
    /// Nothing, for it contradicts itself or the catalogue.
    Refused(Refusal),
    /// Nothing, for there are too few seats of this ticket type.
    Short(String),
}

impl<'t> Stock<'t> {
    /// All that is free of these ticket types.
    pub(crate) fn of(types: &'t BTreeMap<String, TicketType>) -> Self {
        Self { types: types.iter().map(|(id, found)| (id.as_str(), (found, 0))).collect() }
    }

    /// Takes the seats of an order, all or none.
    pub(crate) fn allot(&mut self, ask: &PlaceOrder) -> Allotted {
        let wanted: BTreeMap<&str, u32> = ask.seats.iter().map(|s| (s.ticket_type.as_str(), s.quantity)).collect();
        if wanted.len() < ask.seats.len() {
            return Allotted::Refused(RefusalReason::Invalid.because("a ticket type is listed twice"));
        }
        if let Some(id) = wanted.keys().find(|id| !self.types.contains_key(*id)) {
            return Allotted::Refused(RefusalReason::NotFound.because(format!("there is no ticket type {id}")));
        }
        let (items, total) = match self.price(ask) {
            Ok(priced) => priced,
            Err(refusal) => return Allotted::Refused(refusal),
        };
        if let Some((id, _)) = wanted.iter().find(|(id, quantity)| self.free(id) < i64::from(**quantity)) {
            return Allotted::Short((*id).to_owned());
        }
        for (id, quantity) in wanted {
            if let Some((_, taken)) = self.types.get_mut(id) {
                *taken += i64::from(quantity);
            }
        }
        Allotted::Held { items, total }
    }

    /// What was taken of each ticket type of which something was.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (&'t str, i64)> {
        self.types.iter().map(|(id, (_, taken))| (*id, *taken)).filter(|(_, taken)| *taken > 0)
    }

    fn free(&self, id: &str) -> i64 {
        self.types.get(id).map_or(0, |(found, taken)| found.capacity - found.sold - found.held - taken)
    }

    /// The items at today's prices and their sum, or why they do not go together.
    fn price(&self, ask: &PlaceOrder) -> Result<(Vec<Item>, Money), Refusal> {
        let mut items = Vec::with_capacity(ask.seats.len());
        let mut total: Option<Money> = None;
        for Seats { ticket_type, quantity } in &ask.seats {
            let (found, _) = self.types[ticket_type.as_str()];
            if found.venue != ask.venue {
                return Err(RefusalReason::Invalid.because(format!("ticket type {ticket_type} is of another venue")));
            }
            let sum = total.get_or_insert_with(|| Money { amount: 0, currency: found.price.currency.clone() });
            if sum.currency != found.price.currency {
                return Err(RefusalReason::Invalid.because("the ticket types are priced in different currencies"));
            }
            let price = i64::from(*quantity).checked_mul(found.price.amount);
            sum.amount = price
                .and_then(|price| sum.amount.checked_add(price))
                .ok_or_else(|| RefusalReason::Invalid.because("the total is too large"))?;
            items.push(Item { ticket_type: ticket_type.clone(), quantity: *quantity, unit_price: found.price.clone() });
        }
        let total = total.ok_or_else(|| RefusalReason::Invalid.because("an order has at least one item"))?;
        Ok((items, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::Call,
        money::Currency,
        operation_id::{OrderId, Tenant},
        outcome::Kind,
    };

    fn types(capacities: &[(&str, i64)]) -> BTreeMap<String, TicketType> {
        let offer = |(id, capacity): &(&str, i64)| {
            let price = Money { amount: 100, currency: Currency::new("EUR").unwrap() };
            let (venue, name) = ("demo".to_owned(), "General".to_owned());
            (
                (*id).to_owned(),
                TicketType { id: (*id).to_owned(), venue, name, price, capacity: *capacity, sold: 1, held: 1 },
            )
        };
        capacities.iter().map(offer).collect()
    }

    fn order(seats: &[(&str, u32)]) -> PlaceOrder {
        let seats = seats.iter().map(|(id, quantity)| Seats { ticket_type: (*id).to_owned(), quantity: *quantity });
        PlaceOrder {
            call: Call {
                tenant: Tenant::new("demo-a").unwrap(),
                kind: Kind::PlaceOrder,
                request: Vec::new(),
                grant: None,
            },
            order: OrderId::parse("00000000-0000-4000-8000-000000000001").unwrap(),
            venue: "demo".to_owned(),
            seats: seats.collect(),
        }
    }

    fn is_held(allotted: &Allotted) -> bool {
        matches!(allotted, Allotted::Held { .. })
    }

    #[test]
    fn one_that_does_not_fit_fails_alone_and_takes_nothing() {
        let types = types(&[("a", 5), ("b", 12)]);
        let mut stock = Stock::of(&types);
        assert!(is_held(&stock.allot(&order(&[("a", 2)]))));
        assert_eq!(stock.allot(&order(&[("b", 3), ("a", 2)])), Allotted::Short("a".to_owned()));
        assert!(is_held(&stock.allot(&order(&[("b", 9), ("a", 1)]))));
        assert_eq!(stock.allot(&order(&[("a", 1)])), Allotted::Short("a".to_owned()));
        assert!(is_held(&stock.allot(&order(&[("b", 1)]))));
        assert_eq!(stock.taken().collect::<Vec<_>>(), [("a", 3), ("b", 10)]);
    }

    #[test]
    fn a_refused_order_takes_nothing() {
        let types = types(&[("a", 5), ("b", 5)]);
        let mut stock = Stock::of(&types);
        let mut elsewhere = order(&[("a", 1)]);
        elsewhere.venue = "elsewhere".to_owned();
        for (order, reason) in [
            (order(&[("a", 1), ("a", 1)]), RefusalReason::Invalid),
            (order(&[("a", 1), ("none", 1)]), RefusalReason::NotFound),
            (elsewhere, RefusalReason::Invalid),
            (order(&[]), RefusalReason::Invalid),
        ] {
            match stock.allot(&order) {
                Allotted::Refused(refusal) => assert_eq!(refusal.reason, reason),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(stock.taken().count(), 0);
    }
}
