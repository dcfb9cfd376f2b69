//! Placing orders: seats, prices, tickets.

use idem_proto::orders::v1::{Label, OrderStatus, PaymentStatus, RefusalReason, TicketStatus};

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World},
};

on_both_stores!(
    an_order_holds_its_seats_at_the_price_of_the_moment,
    an_approved_payment_pays_the_order,
    a_declined_payment_keeps_the_hold_for_another_card,
    an_order_of_every_size_has_one_ticket_a_seat,
    what_contradicts_the_catalogue_is_refused_without_effect,
    a_hold_that_is_over_is_not_charged,
    nothing_of_one_tenant_exists_for_another,
);

async fn an_order_holds_its_seats_at_the_price_of_the_moment(world: World) {
    world.put("front-row", 4, 5000).await;
    let items = [("general", 2), ("front-row", 1)];
    let order = world.place_of(&Intent::new(), 1, "demo", &items).await.unwrap().order();
    assert_eq!(order.status(), OrderStatus::Pending);
    assert_eq!(order.total.as_ref().unwrap().amount, 7000);
    assert_eq!(order.items.iter().map(|item| item.quantity).collect::<Vec<_>>(), [2, 1]);
    let kinds: Vec<_> = order.tickets.iter().map(|ticket| ticket.ticket_type_id.as_str()).collect();
    assert_eq!(kinds, ["general", "general", "front-row"]);
    assert!(order.tickets.iter().all(|ticket| ticket.status() == TicketStatus::Held));
    let (created, expires) = (order.created_at.unwrap(), order.hold_expires_at.unwrap());
    assert_eq!(expires.seconds - created.seconds, HOLD.as_secs() as i64);
    assert_eq!(world.stock("general").await, (0, 2, 98));

    world.put("general", 100, 9900).await;
    assert_eq!(world.order(&order.id).await, order, "the price is frozen");
}

async fn an_approved_payment_pays_the_order(world: World) {
    let (order, intent) = world.paid(2).await;
    let paid = world.order(&order.id).await;
    assert_eq!(paid.status(), OrderStatus::Paid);
    assert!(paid.tickets.iter().all(|ticket| ticket.status() == TicketStatus::Valid));
    assert_eq!(world.stock("general").await, (2, 0, 98));
    let payment = world.payment(&intent).await;
    assert_eq!((payment.status(), payment.order_id.as_str()), (PaymentStatus::Approved, order.id.as_str()));
    assert_eq!(payment.amount.unwrap().amount, 2000);
    assert_eq!(payment.id, intent.payment());
    world.advance(HOLD * 3);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid, "a sold seat does not lapse");
}

async fn a_declined_payment_keeps_the_hold_for_another_card(world: World) {
    let order = world.ordered(2).await;
    let first = Intent::new();
    let declined = world.pay(&first, 1, &order.id, "pm_declined").await.unwrap();
    assert_eq!(declined.refusal(), (Label::Final, RefusalReason::PaymentDeclined));
    assert_eq!(world.payment(&first).await.status(), PaymentStatus::Declined);
    assert_eq!(world.stock("general").await, (0, 2, 98));
    let again = world.pay(&first, 2, &order.id, "pm_declined").await.unwrap();
    assert_eq!((again.refusal(), again.replayed), (declined.refusal(), true));
    assert_eq!(world.script.charge_calls(&first.payment()), 1);
    world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(world.stock("general").await, (2, 0, 98));

    // A method the acquirer will never take is a decline, too.
    let order = world.ordered(1).await;
    let refused = world.pay(&Intent::new(), 1, &order.id, "pm_refused").await.unwrap();
    assert_eq!(refused.refusal(), (Label::Final, RefusalReason::PaymentDeclined));
    // And a declined payment does not prolong the hold.
    world.advance(HOLD);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Expired);
}

async fn an_order_of_every_size_has_one_ticket_a_seat(world: World) {
    let types: Vec<String> = (0..50).map(|at| format!("type-{at:02}")).collect();
    for id in &types {
        world.put(id, 50, 10).await;
    }
    let items: Vec<(&str, u32)> = types.iter().map(|id| (id.as_str(), 50)).collect();
    let order = world.place_of(&Intent::new(), 1, "demo", &items).await.unwrap().order();
    assert_eq!(order.tickets.len(), 2500);
    let ids: std::collections::BTreeSet<_> = order.tickets.iter().map(|ticket| &ticket.id).collect();
    assert_eq!(ids.len(), 2500);
    assert_eq!(world.order(&order.id).await, order);
    assert_eq!(world.stock("type-49").await, (0, 50, 0));
}

async fn what_contradicts_the_catalogue_is_refused_without_effect(world: World) {
    world.put_at("elsewhere", "elsewhere", 5, 100, "EUR").await;
    world.put_at("demo", "dollars", 5, 100, "USD").await;
    let cases: [(&[(&str, u32)], RefusalReason); 4] = [
        (&[("general", 1), ("nowhere", 1)], RefusalReason::NotFound),
        (&[("general", 1), ("elsewhere", 1)], RefusalReason::Invalid),
        (&[("general", 1), ("general", 2)], RefusalReason::Invalid),
        (&[("general", 1), ("dollars", 1)], RefusalReason::Invalid),
    ];
    for (items, reason) in cases {
        let answer = world.place_of(&Intent::new(), 1, "demo", items).await.unwrap();
        assert_eq!(answer.refusal(), (Label::NoEffect, reason), "{items:?}");
    }
    assert_eq!(world.stock("general").await, (0, 0, 100));
}

async fn a_hold_that_is_over_is_not_charged(world: World) {
    let order = world.ordered(2).await;
    world.advance(HOLD);
    let intent = Intent::new();
    // The same before and after the sweeper has been there.
    for token in [1, 2] {
        let answer = world.pay(&intent, token, &order.id, "pm_approved").await.unwrap();
        assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::HoldExpiredNotCharged));
        let confirmed = world.confirm(None, 0, &order.id).await.unwrap();
        assert_eq!(confirmed.refusal(), (Label::NoEffect, RefusalReason::HoldExpiredNotCharged));
        world.eventually("the seats are free", || async { world.stock("general").await == (0, 0, 100) }).await;
        world.eventually_order(&order.id, OrderStatus::Expired).await;
    }
    assert_eq!(world.script.charge_calls(&intent.payment()), 0);
}

async fn nothing_of_one_tenant_exists_for_another(world: World) {
    let (order, intent) = world.paid(1).await;
    let stranger = Intent { tenant: "demo-b".to_owned(), ..Intent::new() };
    assert!(world.order_of("demo-b", &order.id).await.is_err());
    assert!(world.payment_of("demo-b", &intent.payment()).await.is_err());
    let not_found = (Label::NoEffect, RefusalReason::NotFound);
    assert_eq!(world.pay(&stranger, 1, &order.id, "pm_approved").await.unwrap().refusal(), not_found);
    let stranger = Intent { id: Intent::new().id, ..stranger };
    assert_eq!(world.cancel(Some(&stranger), 1, &order.id).await.unwrap().refusal(), not_found);
    let stranger = Intent { id: Intent::new().id, ..stranger };
    assert_eq!(world.check_in(Some(&stranger), 1, &order.tickets[0].id).await.unwrap().refusal(), not_found);
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
}
