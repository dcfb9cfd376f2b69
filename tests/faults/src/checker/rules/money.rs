//! The acquirer's ledger and ours agree: at most one charge and one refund a payment, under ids that follow from an operation; and
//! what was captured and not given back is the sum of the orders that are paid by it.

use std::collections::HashMap;

use crate::{
    checker::{Case, Class, Violation, derive},
    ledger::{AcquirerPayment, OrderRow, PaymentRow},
};

pub(super) const NAME: &str = "money";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (id, charge) in &case.ledger.acquirer {
        let said = at_the_acquirer(case, id, charge);
        found.extend(said.into_iter().map(|what| Violation::new(NAME, what).about(id)));
    }
    let mut paid_by = HashMap::<&str, Vec<&OrderRow>>::new();
    for order in &case.ledger.orders {
        if let Some(payment) = &order.paid_by {
            paid_by.entry(payment).or_default().push(order);
        }
    }
    for payment in &case.ledger.payments {
        let paid = paid_by.remove(payment.id.as_str()).unwrap_or_default();
        let said = at_ours(case, payment, &paid);
        found.extend(said.into_iter().map(|what| Violation::new(NAME, what).about(&payment.id)));
    }
    for (payment, orders) in paid_by {
        let what = format!("{} orders are paid by a payment that there is not", orders.len());
        found.push(Violation::new(NAME, what).about(payment));
    }
    found.extend(totals(case));
    found.extend(declined(case));
    let at_ms = case.ledger.read_ms;
    found.iter_mut().for_each(|violation| violation.at_ms = at_ms);
    found
}

/// What is wrong with one payment at the acquirer.
fn at_the_acquirer(case: &Case<'_>, id: &str, charge: &AcquirerPayment) -> Vec<String> {
    let mut found = Vec::new();
    if charge.charges > 1 {
        found.push(format!("it was charged {} times", charge.charges));
    }
    if charge.refunds.len() > 1 {
        found.push(format!("it was refunded {} times", charge.refunds.len()));
    }
    let Some(payment) = case.payments.get(id) else {
        found.push("the acquirer has a payment that we have no record of".to_owned());
        return found;
    };
    if (charge.amount, &charge.currency) != (payment.amount, &payment.currency) {
        found.push(format!("the acquirer has {} {}", charge.amount, charge.currency));
    }
    for (refund, amount) in &charge.refunds {
        let is_ordered = case.refunds.get(id).is_some_and(|row| row.id == *refund);
        if !is_ordered || derive::refund(&payment.operation).as_ref() != Some(refund) || *amount != payment.amount {
            found.push(format!("refund {refund} of {amount} was not ordered"));
        }
    }
    found
}

/// What is wrong with one payment of ours: what its status says of its money must be so.
fn at_ours(case: &Case<'_>, payment: &PaymentRow, paid: &[&OrderRow]) -> Vec<String> {
    let charge = case.ledger.acquirer.get(&payment.id);
    let (status, charges) = charge.map_or(("unknown", 0), |it| (it.status.as_str(), it.charges));
    let returned = charge.is_some_and(|it| !it.refunds.is_empty());
    let refund = case.refunds.get(payment.id.as_str());
    let mut found = Vec::new();
    let is_so = match payment.status.as_str() {
        "approved" => charges == 1 && !returned && refund.is_none(),
        "refund_pending" => charges == 1 && refund.is_some(),
        "refunded" => charges == 1 && returned && refund.is_some_and(|row| row.is_acknowledged),
        "declined" => charges == 0 && matches!(status, "declined" | "unknown"),
        // Given up: a charge that came after all is found as long as it is watched.
        "closed" => charges == 0 || payment.is_watched,
        // Whether it may still be open is a question of time.
        "started" | "pending" => true,
        _ => false,
    };
    if !is_so {
        found.push(format!(
            "it is {} here and {status} there, charged {charges} times, returned: {returned}",
            payment.status
        ));
    }
    match (paid, payment.status.as_str()) {
        ([order], "approved") if order.id == payment.order && order.status == "paid" => {}
        ([order], "refund_pending") if order.id == payment.order && order.status == "refund_pending" => {}
        ([order], "refunded") if order.id == payment.order && order.status == "refunded" => {}
        // Refunded because its order could not be paid by it.
        ([], "refund_pending" | "refunded" | "declined" | "closed" | "started" | "pending") => {}
        (paid, status) => {
            let orders: Vec<_> = paid.iter().map(|order| (&order.id, &order.status)).collect();
            found.push(format!("it is {status} and the orders that are paid by it are {orders:?}"));
        }
    }
    found
}

/// captured − refunded = Σ orders paid through the acquirer, and nothing was charged that is not known by its id.
fn totals(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let totals = case.ledger.totals;
    let known = case.ledger.acquirer.values();
    let charges: i64 = known.clone().map(|it| it.charges).sum();
    let captured: i64 = known.clone().map(|it| it.charges * it.amount).sum();
    let refunded: i64 = known.flat_map(|it| it.refunds.iter().map(|(_, amount)| *amount)).sum();
    if (totals.charges, totals.captured, totals.refunded) != (charges, captured, refunded) {
        let what = format!(
            "the acquirer made {} charges of {} and gave {} back; under ids that follow from our operations it made {charges} of {captured} and gave {refunded} back",
            totals.charges, totals.captured, totals.refunded
        );
        found.push(Violation::new(NAME, what));
    }
    let paid: i64 = case
        .ledger
        .orders
        .iter()
        .filter(|order| order.status == "paid" && order.paid_by.is_some())
        .map(|order| order.total)
        .sum();
    // On its way back: promised by a refund that is not acknowledged, or found later by the watch on a payment that was given up.
    let owed: i64 = case
        .ledger
        .payments
        .iter()
        .filter(|payment| matches!(payment.status.as_str(), "refund_pending" | "closed" | "started" | "pending"))
        .filter_map(|payment| case.ledger.acquirer.get(&payment.id))
        .filter(|charge| charge.refunds.is_empty())
        .map(|charge| charge.charges * charge.amount)
        .sum();
    if totals.captured - totals.refunded != paid + owed {
        let what = format!(
            "captured {} − refunded {} is not {paid} paid by orders + {owed} on its way",
            totals.captured, totals.refunded
        );
        found.push(Violation::new(NAME, what));
    }
    found
}

/// Whoever was told that a payment was declined was not charged; who was told that it was refunded got it back.
fn declined(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, calls) in &case.keyed {
        let Some(id) = case.operation(key).and_then(derive::payment) else { continue };
        let Some(charge) = case.ledger.acquirer.get(&id) else { continue };
        for call in calls {
            let Some(answer) = call.answer() else { continue };
            let is_kept = charge.charges > 0 && charge.refunds.is_empty();
            let what = match (answer.status, Class::of(answer)) {
                (402, _) if charge.charges > 0 => "was told that nothing was charged, and something was",
                (409, Class::Final) if is_kept && !is_on_its_way(case, &id) => {
                    "was told of a refund, and the acquirer has kept the money"
                }
                _ => continue,
            };
            found.push(Violation::new(NAME, format!("call {} {what}", call.id)).of(key).about(&id));
        }
    }
    found
}

fn is_on_its_way(case: &Case<'_>, payment: &str) -> bool {
    case.refunds.get(payment).is_some_and(|row| !row.is_acknowledged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, PRICE, problem};

    fn broken(change: impl FnOnce(&mut Fixture)) -> String {
        let mut fixture = Fixture::good();
        change(&mut fixture);
        fixture.broken(check).join("\n")
    }

    #[test]
    fn a_second_charge_or_refund_is_reported() {
        assert!(broken(|it| it.charge("k2").charges = 2).contains("it was charged 2 times"));
        let twice = broken(|it| {
            let id = it.ledger.refunds[0].payment.clone();
            it.ledger.acquirer.get_mut(&id).unwrap().refunds.push(("again".into(), 3 * PRICE));
        });
        assert!(twice.contains("it was refunded 2 times") && twice.contains("was not ordered"), "{twice}");
    }

    #[test]
    fn a_charge_under_a_strange_id_is_reported() {
        let strange = broken(|it| {
            it.ledger.totals.charges += 1;
            it.ledger.totals.captured += PRICE;
        });
        assert!(strange.contains("under ids that follow from our operations"), "{strange}");
        assert!(strange.contains("is not"), "{strange}");
        let unrecorded = broken(|it| {
            let id = it.payment_id("k5");
            it.ledger.payments.retain(|row| row.id != id);
        });
        assert!(unrecorded.contains("that we have no record of"), "{unrecorded}");
    }

    #[test]
    fn money_that_pays_no_order_or_another_amount_is_reported() {
        let nothing = broken(|it| it.order_row("k7").paid_by = Some("nothing".into()));
        assert!(nothing.contains("1 orders are paid by a payment that there is not"), "{nothing}");
        let unpaid = broken(|it| it.order_row("k1").status = "cancelled".into());
        assert!(unpaid.contains("the orders that are paid by it") && unpaid.contains("is not"), "{unpaid}");
        assert!(broken(|it| it.charge("k2").amount += 1).contains("the acquirer has 2001 EUR"));
        let unrefunded = broken(|it| {
            let id = it.ledger.refunds[0].payment.clone();
            it.ledger.acquirer.get_mut(&id).unwrap().refunds.clear();
            it.ledger.totals.refunded = 0;
        });
        assert!(unrefunded.contains("it is refunded here"), "{unrefunded}");
    }

    #[test]
    fn an_order_that_is_paid_without_money_is_reported() {
        let forged = broken(|it| {
            it.payment_row("k5").status = "approved".into();
            let id = it.payment_id("k5");
            let order = it.order_row("k4");
            (order.status, order.paid_by) = ("paid".into(), Some(id));
        });
        assert!(forged.contains("it is approved here and declined there") && forged.contains("is not"), "{forged}");
    }

    #[test]
    fn who_was_told_that_nothing_was_charged_was_not() {
        let charged = broken(|it| {
            *it.charge("k5") = AcquirerPayment { status: "approved".into(), charges: 1, ..it.charge("k5").clone() };
        });
        assert!(charged.contains("was told that nothing was charged, and something was"), "{charged}");
        let kept = broken(|it| {
            for place in 0..3 {
                *it.heard("k2", place) = problem(409, "hold_expired", "refunded");
            }
        });
        assert!(kept.contains("the acquirer has kept the money"), "{kept}");
    }

    #[test]
    fn a_late_charge_on_a_payment_that_was_given_up_is_watched_or_reported() {
        for (is_watched, is_reported) in [(true, false), (false, true)] {
            let found = broken(|it| {
                it.history.calls.retain(|call| call.key.as_deref() != Some("k5"));
                let row = it.payment_row("k5");
                (row.status, row.is_watched) = ("closed".into(), is_watched);
                *it.charge("k5") = AcquirerPayment { status: "approved".into(), charges: 1, ..it.charge("k5").clone() };
                it.ledger.totals.charges += 1;
                it.ledger.totals.captured += PRICE;
            });
            assert_eq!(!found.is_empty(), is_reported, "{found}");
        }
    }
}
