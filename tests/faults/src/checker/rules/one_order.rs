//! Keys, operations, orders, payments and refunds belong together: at most one order and one payment a key, none without a key, none
//! under a key that was released, and no key that was ever held is gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::checker::{Case, Class, KeyId, Route, Violation, derive};

pub(super) const NAME: &str = "one-order";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = keys(case);
    found.extend(operations(case));
    found.extend(rows(case));
    let at_ms = case.ledger.read_ms;
    found.iter_mut().for_each(|violation| violation.at_ms = at_ms);
    found
}

/// Every key is one that was sent, and has an operation of its own; every key that was certainly held is there.
fn keys(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut owners = BTreeMap::<&str, &KeyId>::new();
    for (key, row) in &case.keys {
        if !case.keyed.contains_key(key) {
            found.push(Violation::new(NAME, "nobody ever sent this key").of(key));
        }
        if let Some(other) = owners.insert(&row.operation, key) {
            let what = format!("its operation is that of tenant {}'s key {}, too", other.tenant, other.key);
            found.push(Violation::new(NAME, what).of(key));
        }
    }
    for (key, calls) in &case.keyed {
        let held = calls.iter().find(|call| call.answer().is_some_and(|answer| Class::of(answer).is_bound()));
        if let (Some(call), None) = (held, case.keys.get(key)) {
            let what = format!("call {} found it held, and there is no row of it", call.id);
            found.push(Violation::new(NAME, what).of(key));
        }
    }
    found
}

/// Every operation is that of a key, is what its key asked for, and is decided exactly when its key is.
fn operations(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let keys: BTreeMap<&str, &KeyId> = case.keys.iter().map(|(key, row)| (row.operation.as_str(), key)).collect();
    for operation in &case.ledger.operations {
        let Some(key) = keys.get(operation.id.as_str()) else {
            found.push(Violation::new(NAME, "no key has this operation").about(&operation.id));
            continue;
        };
        if let (Some(tenant), Some(kind)) = (&operation.tenant, &operation.kind) {
            let is_asked = case
                .keyed
                .get(key)
                .is_some_and(|calls| calls.iter().any(|call| Route::of(call).operation_kind() == Some(kind)));
            if *tenant != key.tenant || !is_asked {
                let what = format!("its operation is {kind} of tenant {tenant}, which nobody asked for");
                found.push(Violation::new(NAME, what).of(key));
            }
        }
    }
    for (key, row) in &case.keys {
        let label = case.operations.get(row.operation.as_str()).and_then(|it| it.label.as_deref());
        match (row.state.as_str(), label) {
            ("completed", Some("final")) | ("in_progress" | "in_doubt", _) => {}
            ("completed", label) => {
                found.push(Violation::new(NAME, format!("it is completed and its operation {label:?}")).of(key));
            }
            // Given up, and decided afterwards: only the payment changes, and money that came goes back.
            ("released", Some("final")) if is_settled_late(case, &row.operation) => {}
            ("released", Some("final")) => {
                found.push(Violation::new(NAME, "it was released and its operation took effect").of(key));
            }
            _ => {}
        }
    }
    found
}

fn is_settled_late(case: &Case<'_>, operation: &str) -> bool {
    let payment = derive::payment(operation).and_then(|id| case.payments.get(id.as_str()).copied());
    payment.is_some_and(|it| matches!(it.status.as_str(), "declined" | "refund_pending" | "refunded"))
}

/// Every order and payment follows from the operation of a key, every refund from that of its payment.
fn rows(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let ids = |derived: fn(&str) -> Option<String>| -> BTreeSet<String> {
        case.keys.values().filter_map(|row| derived(&row.operation)).collect()
    };
    let (orders, payments) = (ids(derive::order), ids(derive::payment));
    for order in case.ledger.orders.iter().filter(|order| !orders.contains(&order.id)) {
        found.push(Violation::new(NAME, "this order follows from no key").about(&order.id));
    }
    for payment in &case.ledger.payments {
        if derive::payment(&payment.operation).as_deref() != Some(&payment.id) || !payments.contains(&payment.id) {
            found.push(Violation::new(NAME, "this payment follows from no key").about(&payment.id));
        }
        let order = case.orders.get(payment.order.as_str());
        if order.is_none_or(|order| (order.total, &order.currency) != (payment.amount, &payment.currency)) {
            found.push(Violation::new(NAME, "this payment is not of its order's total").about(&payment.id));
        }
    }
    for refund in &case.ledger.refunds {
        let payment = case.payments.get(refund.payment.as_str());
        let derived = payment.and_then(|payment| derive::refund(&payment.operation));
        if derived.as_deref() != Some(&refund.id) || payment.map(|it| it.amount) != Some(refund.amount) {
            found.push(Violation::new(NAME, "this refund does not follow from its payment").about(&refund.id));
        }
    }
    for (key, calls) in &case.keyed {
        let Some(order) = case.operation(key).and_then(derive::order) else { continue };
        for call in calls.iter().filter(|call| Route::of(call) == Route::Place) {
            let said = call.answer().filter(|answer| answer.status == 201).map(|answer| answer.json());
            if said.is_some_and(|said| said["id"].as_str() != Some(&order)) {
                let what = format!("call {} was told of an order that does not follow from its key", call.id);
                found.push(Violation::new(NAME, what).of(key));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checker::fixture::{Fixture, problem},
        ledger::KeyRow,
    };

    fn broken(change: impl FnOnce(&mut Fixture)) -> String {
        let mut fixture = Fixture::good();
        change(&mut fixture);
        fixture.broken(check).join("\n")
    }

    #[test]
    fn an_order_without_a_key_is_reported() {
        let second = |it: &mut Fixture| {
            let mut order = it.order_row("k1").clone();
            order.id = derive::order("0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11").unwrap();
            it.ledger.orders.push(order);
        };
        assert_eq!(broken(second), "this order follows from no key");
        let told = broken(|it| {
            let other = it.order_row("k4").id.clone();
            let mine = it.order_row("k1").id.clone();
            let answer = it.heard("k1", 0);
            answer.body = answer.body.replace(&mine, &other);
        });
        assert!(told.contains("was told of an order that does not follow from its key"), "{told}");
    }

    #[test]
    fn a_payment_or_refund_under_a_foreign_id_is_reported() {
        let found = broken(|it| it.payment_row("k2").operation = "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11".into());
        assert!(found.contains("this payment follows from no key"), "{found}");
        assert!(broken(|it| it.ledger.refunds[0].id = "other".into()).contains("this refund does not follow"));
        assert!(broken(|it| it.ledger.refunds[0].amount += 1).contains("this refund does not follow"));
        assert!(broken(|it| it.payment_row("k5").amount += 1).contains("not of its order's total"));
    }

    #[test]
    fn a_key_that_was_never_sent_or_is_gone_or_shares_its_operation_is_reported() {
        let strange = |it: &mut Fixture| {
            let row = KeyRow { key: "strange".into(), ..it.key_row("k1").clone() };
            it.ledger.keys.push(row);
        };
        let found = broken(strange);
        assert!(found.contains("nobody ever sent this key") && found.contains("its operation is that of"), "{found}");
        assert!(broken(|it| it.ledger.keys.retain(|row| row.key != "k8")).contains("there is no row of it"));
        let never_held = broken(|it| {
            for place in 0..3 {
                *it.heard("k8", place) = problem(503, "idempotency_unavailable", "");
            }
            let operation = it.key_row("k8").operation.clone();
            it.ledger.keys.retain(|row| row.key != "k8");
            it.ledger.operations.retain(|row| row.id != operation);
        });
        assert_eq!(never_held, "");
    }

    #[test]
    fn a_key_and_its_operation_that_disagree_are_reported() {
        assert_eq!(
            broken(|it| it.key_row("k3").state = "released".into()),
            "it was released and its operation took effect"
        );
        assert!(broken(|it| it.key_row("k2").state = "released".into()).contains("its operation took effect"));
        // Given up, and declined afterwards.
        assert_eq!(broken(|it| it.key_row("k5").state = "released".into()), "");
        let operation = |it: &mut Fixture, key: &str| {
            let id = it.key_row(key).operation.clone();
            it.ledger.operations.iter().position(|row| row.id == id).unwrap()
        };
        let undecided = broken(|it| {
            let at = operation(it, "k3");
            it.ledger.operations[at].label = None;
        });
        assert_eq!(undecided, "it is completed and its operation None");
        let other = broken(|it| {
            let at = operation(it, "k3");
            it.ledger.operations[at].kind = Some("pay".into());
        });
        assert!(other.contains("which nobody asked for"), "{other}");
        let orphan = broken(|it| {
            let at = operation(it, "k3");
            it.ledger.operations[at].id = "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11".into();
        });
        assert!(orphan.contains("no key has this operation"), "{orphan}");
    }
}
