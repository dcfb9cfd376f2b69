//! No seat is sold or held twice, at any sample; and sold and held are exactly the seats of the paid and the pending orders.

use std::collections::BTreeMap;

use crate::{
    checker::{Case, Route, Violation},
    history::TypeSample,
};

pub(super) const NAME: &str = "stock";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for sample in &case.history.stock {
        for it in &sample.types {
            found.extend(judge(it).map(|what| Violation::new(NAME, what).about(&it.id).at(sample.ms)));
        }
    }
    for call in &case.history.calls {
        let (Route::TicketType(id), Some((ms, answer))) = (Route::of(call), call.answered()) else { continue };
        if answer.status == 200 {
            let said = answer.json();
            let number = |name: &str| said[name].as_i64().unwrap_or(i64::MIN);
            let (capacity, sold, held) = (number("capacity"), number("sold"), number("held"));
            let shown = TypeSample { id: id.to_owned(), capacity, sold, held, orders: None };
            found.extend(judge(&shown).map(|what| Violation::new(NAME, what).about(id).at(ms)));
            if number("available") != capacity - sold - held {
                let what = format!("call {} was shown {}", call.id, answer.body);
                found.push(Violation::new(NAME, what).about(id).at(ms));
            }
        }
    }
    found.extend(at_the_end(case));
    found
}

fn judge(it: &TypeSample) -> Option<String> {
    if it.sold < 0 || it.held < 0 || it.sold + it.held > it.capacity {
        return Some(format!("{} sold and {} held of {}", it.sold, it.held, it.capacity));
    }
    let (paid, pending) = it.orders?;
    ((paid, pending) != (it.sold, it.held)).then(|| {
        format!("{} sold and {} held, but paid orders have {paid} seats and pending ones {pending}", it.sold, it.held)
    })
}

fn at_the_end(case: &Case<'_>) -> Vec<Violation> {
    let mut seats = BTreeMap::<&str, (i64, i64)>::new();
    for order in &case.ledger.orders {
        for (ticket_type, quantity, _) in &order.items {
            let (paid, pending) = seats.entry(ticket_type).or_default();
            match order.status.as_str() {
                "paid" => *paid += quantity,
                "pending" => *pending += quantity,
                _ => {}
            }
        }
    }
    let row = |it: &crate::ledger::TypeRow| {
        let orders = Some(seats.get(it.id.as_str()).copied().unwrap_or_default());
        let end = TypeSample { id: it.id.clone(), capacity: it.capacity, sold: it.sold, held: it.held, orders };
        judge(&end)
            .map(|what| Violation::new(NAME, format!("at the end, {what}")).about(&it.id).at(case.ledger.read_ms))
    };
    case.ledger.ticket_types.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checker::fixture::{Fixture, json},
        history::Purpose,
    };

    fn broken(change: impl FnOnce(&mut Fixture)) -> Vec<String> {
        let mut fixture = Fixture::good();
        change(&mut fixture);
        fixture.broken(check)
    }

    #[test]
    fn a_sample_with_more_than_there_is_or_less_than_nothing_is_reported() {
        let over = broken(|it| it.history.stock[0].types[0].capacity = 2);
        assert_eq!(over, ["3 sold and 0 held of 2"]);
        let under = broken(|it| it.history.stock[0].types[0].held = -1);
        assert_eq!(under, ["3 sold and -1 held of 100"]);
    }

    #[test]
    fn counts_that_the_orders_do_not_add_up_to_are_reported() {
        let sample = broken(|it| it.history.stock[0].types[0].sold = 4);
        assert!(sample[0].contains("but paid orders have 3 seats"), "{sample:?}");
        let end = broken(|it| it.ledger.ticket_types[0].held = 1);
        assert!(end[0].starts_with("at the end, 3 sold and 1 held"), "{end:?}");
    }

    #[test]
    fn a_shown_stock_that_does_not_add_up_is_reported() {
        let shown = |available: i64, sold: i64| {
            let body = format!(r#"{{"id":"t","capacity":10,"sold":{sold},"held":2,"available":{available}}}"#);
            broken(|it| it.sent("a", "GET", "/v1/ticket-types/t", json(200, &body)).purpose = Purpose::Read)
        };
        assert_eq!(shown(4, 4), Vec::<String>::new());
        assert!(shown(5, 4)[0].contains("was shown"));
        assert_eq!(shown(-1, 9)[0], "9 sold and 2 held of 10");
    }
}
