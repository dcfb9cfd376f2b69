//! Every success that was ever seen is still true: the order, payment, cancellation or check-in is there, with what was said of it.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    checker::{
        Case, Route, Violation,
        case::key_of,
        derive,
        transitions::{Thing, is_reachable},
    },
    history::{Answer, Call},
    ledger::OrderRow,
};

pub(super) const NAME: &str = "promises";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = missing(case);
    for call in &case.history.calls {
        let Some((ms, answer)) = call.answered() else { continue };
        if let Err(what) = hold_against(case, call, answer) {
            let mut violation =
                Violation::new(NAME, format!("call {} was told {}: {what}", call.id, answer.body)).at(ms);
            violation.key = key_of(call);
            found.push(violation);
        }
    }
    found
}

/// What a tenant was told of is there from then on, whenever the tenant asks.
fn missing(case: &Case<'_>) -> Vec<Violation> {
    let mut told = HashMap::<(&str, String), u64>::new();
    for call in &case.history.calls {
        let Some((ms, answer)) = call.answered() else { continue };
        let ids = match (Route::of(call), answer.status) {
            (Route::Place, 201) => named(&answer.json()),
            (Route::Pay, 201 | 202) => named(&answer.json()),
            _ => continue,
        };
        for id in ids {
            let first = told.entry((&call.tenant, id)).or_insert(ms);
            *first = ms.min(*first);
        }
    }
    let mut found = Vec::new();
    for call in case.history.calls.iter().filter(|call| call.answer().is_some_and(|answer| answer.status == 404)) {
        let asked: Value = serde_json::from_str(&call.body).unwrap_or_default();
        let id = match Route::of(call) {
            Route::Confirm(id) | Route::Cancel(id) | Route::Link(id) | Route::CheckIn(id) => id,
            Route::Order(id) | Route::Payment(id) => id,
            Route::Pay => text(&asked, "orderId"),
            Route::Place | Route::TicketType(_) | Route::Key(_) | Route::Other => continue,
        };
        if let Some(since) = told.get(&(call.tenant.as_str(), id.to_owned())).filter(|since| **since < call.sent_ms) {
            let what = format!("call {} did not find what had been there since {since} ms", call.id);
            let mut violation = Violation::new(NAME, what).about(id).at(call.done_ms.unwrap_or(call.sent_ms));
            violation.key = key_of(call);
            found.push(violation);
        }
    }
    found
}

/// The ids in an answer about an order or a payment.
fn named(said: &Value) -> Vec<String> {
    let tickets = list(&said["tickets"]).iter().map(|ticket| text(ticket, "id"));
    tickets.chain([text(said, "id")]).map(str::to_owned).collect()
}

fn hold_against(case: &Case<'_>, call: &Call, answer: &Answer) -> Result<(), String> {
    if !(200..300).contains(&answer.status) {
        return Ok(());
    }
    let said = answer.json();
    match Route::of(call) {
        Route::Place => {
            let row = order(case, call, &said)?;
            placed(call, answer, &said, row)
        }
        Route::Order(id) => same("id", &said["id"], id).and_then(|()| order(case, call, &said).map(drop)),
        Route::Confirm(id) => {
            same("id", &said["id"], id)?;
            same("status", &said["status"], "paid")?;
            order(case, call, &said).map(drop)
        }
        Route::Cancel(id) => {
            same("id", &said["id"], id)?;
            match said["status"].as_str() {
                Some("cancelled" | "refund_pending" | "refunded") => order(case, call, &said).map(drop),
                _ => Err("that is no cancelled order".to_owned()),
            }
        }
        Route::Pay => paid(case, call, answer, &said),
        Route::Payment(id) => same("id", &said["id"], id).and_then(|()| payment(case, call, &said)),
        Route::CheckIn(id) => checked_in(case, call, &said, id),
        Route::TicketType(_) | Route::Key(_) | Route::Link(_) | Route::Other => Ok(()),
    }
}

/// What is said of an order agrees with its row, but for the status, which may have moved on.
fn order<'c>(case: &Case<'c>, call: &Call, said: &Value) -> Result<&'c OrderRow, String> {
    let row = case.orders.get(text(said, "id")).ok_or("there is no such order")?;
    let status = text(said, "status");
    if !is_reachable(Thing::Order, status, &row.status) {
        return Err(format!("an order that was {status} cannot be {}", row.status));
    }
    same("total", &said["total"]["amount"], row.total)?;
    same("currency", &said["total"]["currency"], row.currency.as_str())?;
    same("tenant", &Value::from(row.tenant.as_str()), call.tenant.as_str())?;
    same("venue", &said["venueId"], row.venue.as_str())?;
    let items: Vec<(String, i64, i64)> = list(&said["items"])
        .iter()
        .map(|item| {
            let price = &item["unitPrice"]["amount"];
            (text(item, "ticketTypeId").to_owned(), number(&item["quantity"]), number(price))
        })
        .collect();
    if items != row.items {
        return Err(format!("its items are {:?}", row.items));
    }
    Ok(row)
}

/// What only the answer to the placing says: what was asked for, and one ticket a seat.
fn placed(call: &Call, answer: &Answer, said: &Value, row: &OrderRow) -> Result<(), String> {
    if answer.status != 201 {
        return Err(format!("an order is placed with 201, not {}", answer.status));
    }
    same("location", &Value::from(answer.header("location")), format!("/v1/orders/{}", row.id).as_str())?;
    let asked: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let wanted: Vec<(String, i64)> = list(&asked["items"])
        .iter()
        .map(|item| (text(item, "ticketTypeId").to_owned(), number(&item["quantity"])))
        .collect();
    let got: Vec<(String, i64)> = row.items.iter().map(|(name, quantity, _)| (name.clone(), *quantity)).collect();
    if wanted != got {
        return Err(format!("{wanted:?} was asked for"));
    }
    let tickets: Vec<&str> = list(&said["tickets"]).iter().map(|ticket| text(ticket, "id")).collect();
    let kept: Vec<&str> = row.tickets.iter().map(|(id, _)| id.as_str()).collect();
    if tickets != kept {
        return Err(format!("its tickets are {kept:?}"));
    }
    for (ticket, position) in kept.iter().zip(0..) {
        if derive::ticket(&row.id, position).as_deref() != Some(*ticket) {
            return Err(format!("ticket {ticket} does not follow from the order"));
        }
    }
    let seats: i64 = row.items.iter().map(|(_, quantity, _)| quantity).sum();
    let sum: i64 = row.items.iter().map(|(_, quantity, price)| quantity * price).sum();
    if usize::try_from(seats) != Ok(kept.len()) || sum != row.total {
        return Err(format!("{seats} seats for {sum} in all"));
    }
    Ok(())
}

fn paid(case: &Case<'_>, call: &Call, answer: &Answer, said: &Value) -> Result<(), String> {
    let asked: Value = serde_json::from_str(&call.body).unwrap_or_default();
    same("orderId", &said["orderId"], text(&asked, "orderId"))?;
    let status = if answer.status == 201 { "approved" } else { "pending" };
    same("status", &said["status"], status)?;
    payment(case, call, said)
}

fn payment(case: &Case<'_>, call: &Call, said: &Value) -> Result<(), String> {
    let row = case.payments.get(text(said, "id")).ok_or("there is no such payment")?;
    let status = text(said, "status");
    if !is_reachable(Thing::Payment, status, &row.status) {
        return Err(format!("a payment that was {status} cannot be {}", row.status));
    }
    same("amount", &said["amount"], row.amount)?;
    same("currency", &said["currency"], row.currency.as_str())?;
    same("orderId", &said["orderId"], row.order.as_str())?;
    same("tenant", &Value::from(row.tenant.as_str()), call.tenant.as_str())?;
    if matches!(status, "approved" | "refund_pending" | "refunded") {
        let charge = case.ledger.acquirer.get(&row.id).ok_or("the acquirer knows nothing of it")?;
        if (charge.charges, charge.amount, charge.currency.as_str()) != (1, row.amount, row.currency.as_str()) {
            return Err(format!("the acquirer has {charge:?}"));
        }
    }
    Ok(())
}

fn checked_in(case: &Case<'_>, call: &Call, said: &Value, id: &str) -> Result<(), String> {
    same("ticketId", &said["ticketId"], id)?;
    let (order, used_at) = case.tickets.get(id).copied().ok_or("there is no such ticket")?;
    same("tenant", &Value::from(order.tenant.as_str()), call.tenant.as_str())?;
    let used_at = used_at.ok_or("the ticket was never used")?;
    let moment = humantime::parse_rfc3339(text(said, "usedAt")).map_err(|error| error.to_string())?;
    let millis = moment.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    // Shown in milliseconds, kept in microseconds.
    if u128::try_from(used_at / 1000) != Ok(millis) {
        return Err(format!("it was used at {used_at} µs"));
    }
    Ok(())
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// A quantity may be spelt `2.0`.
fn number(value: &Value) -> i64 {
    value.as_f64().map_or(i64::MIN, |number| number as i64)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn same<T>(name: &str, said: &Value, is: T) -> Result<(), String>
where
    Value: From<T>,
{
    let is = Value::from(is);
    if *said == is { Ok(()) } else { Err(format!("its {name} is {is}, not {said}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, json, problem};

    fn broken(change: impl FnOnce(&mut Fixture)) -> String {
        let mut fixture = Fixture::good();
        change(&mut fixture);
        fixture.broken(check).join("\n")
    }

    #[test]
    fn an_order_that_is_gone_or_other_than_it_was_said_to_be_is_reported() {
        type Change = fn(&mut OrderRow);
        let table: [(Change, &str); 7] = [
            (|row| row.id = "gone".into(), "there is no such order"),
            (|row| row.total += 1, "its total is"),
            (|row| row.tenant = "b".into(), "its tenant is"),
            (|row| row.items[0].1 += 1, "its items are"),
            (|row| row.tickets[1].0 = "other".into(), "its tickets are"),
            (|row| row.status = "expired".into(), "an order that was paid cannot be expired"),
            (|row| row.currency = "USD".into(), "its currency is"),
        ];
        for (change, what) in table {
            let found = broken(|it| change(it.order_row("k1")));
            assert!(found.contains(what), "{what}: {found}");
        }
    }

    #[test]
    fn an_order_other_than_the_one_asked_for_is_reported() {
        let found = broken(|it| {
            for call in it.history.calls.iter_mut().filter(|call| call.key.as_deref() == Some("k1")) {
                call.body = call.body.replace(":2", ":5");
            }
        });
        assert!(found.contains("was asked for"), "{found}");
    }

    #[test]
    fn what_was_there_and_is_not_found_is_reported() {
        let not_found = |it: &mut Fixture, tenant: &str, path: String| {
            it.sent(tenant, "GET", &path, problem(404, "not_found", ""));
        };
        for (tenant, is_reported) in [("a", true), ("b", false)] {
            let found = broken(|it| {
                let path = format!("/v1/orders/{}", it.order_row("k1").id);
                not_found(it, tenant, path);
            });
            assert_eq!(found.contains("did not find what had been there since"), is_reported, "{found}");
        }
        let payment = broken(|it| {
            let path = format!("/v1/payments/{}", it.payment_id("k2"));
            not_found(it, "a", path);
        });
        assert!(payment.contains("did not find"), "{payment}");
        let unknown = broken(|it| not_found(it, "a", "/v1/orders/0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11".into()));
        assert_eq!(unknown, "");
    }

    #[test]
    fn a_payment_without_its_money_is_reported() {
        assert!(broken(|it| it.ledger.payments.clear()).contains("there is no such payment"));
        assert!(broken(|it| it.payment_row("k2").status = "declined".into()).contains("cannot be declined"));
        assert!(broken(|it| it.payment_row("k2").amount += 1).contains("its amount is"));
        assert!(broken(|it| it.ledger.acquirer.clear()).contains("the acquirer knows nothing of it"));
        assert!(broken(|it| it.charge("k2").charges = 0).contains("the acquirer has"));
        assert!(broken(|it| it.charge("k2").amount += 1).contains("the acquirer has"));
    }

    #[test]
    fn a_cancellation_that_came_to_nothing_is_reported() {
        assert!(broken(|it| it.order_row("k4").status = "paid".into()).contains("was cancelled cannot be paid"));
        let pending = |it: &mut Fixture| {
            let answer = it.heard("k6", 0);
            *answer = json(200, &answer.body.replace("cancelled", "pending"));
        };
        assert!(broken(pending).contains("that is no cancelled order"));
        assert!(broken(|it| it.order_row("k7").status = "pending".into()).contains("was paid cannot be pending"));
    }

    #[test]
    fn a_check_in_that_is_forgotten_or_moved_is_reported() {
        assert!(broken(|it| it.order_row("k1").tickets[0].1 = None).contains("never used"));
        assert!(broken(|it| it.order_row("k1").tickets[0].1 = Some(1_767_323_046_678_901)).contains("it was used at"));
    }
}
