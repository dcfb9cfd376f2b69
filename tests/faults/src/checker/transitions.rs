//! Where an order or a payment can go from where it was seen.

/// What has a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// An order, as it is shown.
    Order,
    /// A payment, as it is shown or as it is kept.
    Payment,
}

/// May something that was seen as `from` be `to` now?
pub(super) fn is_reachable(thing: Thing, from: &str, to: &str) -> bool {
    let onward: &[&str] = match (thing, from) {
        (Thing::Order, "pending") => &["pending", "paid", "cancelled", "expired", "refund_pending", "refunded"],
        // Confirmed orders are cancelled without a refund.
        (Thing::Order, "paid") => &["paid", "cancelled", "refund_pending", "refunded"],
        // An approval that comes late takes the seats again if they are free. `pending` is how it is kept until it is swept.
        (Thing::Order, "expired") => &["expired", "paid", "cancelled", "refund_pending", "refunded"],
        (Thing::Payment, "pending" | "started" | "closed") => {
            &["pending", "started", "closed", "approved", "declined", "refund_pending", "refunded"]
        }
        (Thing::Payment, "approved") => &["approved", "refund_pending", "refunded"],
        (Thing::Order | Thing::Payment, "refund_pending") => &["refund_pending", "refunded"],
        (Thing::Order | Thing::Payment, "cancelled" | "declined" | "refunded") => return from == to,
        _ => &[],
    };
    onward.contains(&to)
}

/// The status of a kept order as it would be shown: whether a hold has lapsed, only its clock can tell.
pub(super) fn may_be_shown_as(kept: &str, shown: &str) -> bool {
    kept == shown || (kept == "pending" && shown == "expired")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_back_from_where_it_ended() {
        for end in ["cancelled", "refunded"] {
            for to in ["pending", "paid", "cancelled", "expired", "refund_pending", "refunded"] {
                assert_eq!(is_reachable(Thing::Order, end, to), end == to, "{end} {to}");
            }
        }
        for (from, to) in [("paid", "pending"), ("paid", "expired"), ("refund_pending", "paid"), ("nonsense", "paid")] {
            assert!(!is_reachable(Thing::Order, from, to), "{from} {to}");
        }
        for (from, to) in [("declined", "approved"), ("refunded", "approved"), ("approved", "declined")] {
            assert!(!is_reachable(Thing::Payment, from, to), "{from} {to}");
        }
        assert!(is_reachable(Thing::Payment, "closed", "refunded") && is_reachable(Thing::Order, "expired", "paid"));
    }
}
