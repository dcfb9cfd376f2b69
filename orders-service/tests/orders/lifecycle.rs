//! Confirming, cancelling, checking in, payment links.

use std::time::Duration;

use idem_proto::orders::v1::{
    self as proto, Label, OrderStatus, PaymentStatus, RefusalReason, TicketStatus,
    create_payment_link_response::Outcome as Link, result::Kind,
};

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, TENANT, World},
};

on_both_stores!(
    an_order_paid_elsewhere_is_confirmed_once,
    cancelling_a_pending_order_frees_its_seats_at_once,
    cancelling_a_paid_order_refunds_it_once_however_often_that_takes,
    cancelling_a_confirmed_order_refunds_nothing,
    a_ticket_lets_in_once_and_remembers_when,
    ten_confirmations_at_once_confirm_once,
    a_payment_link_lasts_as_long_as_its_hold,
);

async fn an_order_paid_elsewhere_is_confirmed_once(world: World) {
    let (order, intent) = (world.ordered(2).await, Intent::new());
    let confirmed = world.confirm(Some(&intent), 1, &order.id).await.unwrap();
    assert_eq!(confirmed.order().status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (2, 0, 98));
    assert_eq!(world.confirm(Some(&intent), 1, &order.id).await.unwrap(), confirmed);
    assert!(world.confirm(Some(&intent), 2, &order.id).await.unwrap().replayed);
    let not_pending = (Label::NoEffect, RefusalReason::NotPending);
    assert_eq!(world.confirm(None, 0, &order.id).await.unwrap().refusal(), not_pending);
    assert_eq!(world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().refusal(), not_pending);
    assert_eq!(world.confirm(None, 0, "no-such-order").await.unwrap().refusal().1, RefusalReason::NotFound);
}

async fn cancelling_a_pending_order_frees_its_seats_at_once(world: World) {
    let order = world.ordered(50).await;
    let cancelled = world.cancel(None, 0, &order.id).await.unwrap().order();
    assert_eq!(cancelled.status(), OrderStatus::Cancelled);
    assert!(cancelled.tickets.iter().all(|ticket| ticket.status() == TicketStatus::Void));
    assert_eq!(world.stock("general").await, (0, 0, 100));
    let again = world.cancel(None, 0, &order.id).await.unwrap();
    assert_eq!(again.refusal(), (Label::NoEffect, RefusalReason::NotCancellable));
    let paid = world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap();
    assert_eq!(paid.refusal(), (Label::NoEffect, RefusalReason::NotPending));
    // An order that has expired is not there to be cancelled either.
    let order = world.ordered(1).await;
    world.advance(HOLD);
    let expired = world.cancel(None, 0, &order.id).await.unwrap();
    assert_eq!(expired.refusal(), (Label::NoEffect, RefusalReason::NotCancellable));
}

async fn cancelling_a_paid_order_refunds_it_once_however_often_that_takes(world: World) {
    let (order, paying) = world.paid(2).await;
    world.script.set_refunds_down(true);
    let intent = Intent::new();
    let cancelled = world.cancel(Some(&intent), 1, &order.id).await.unwrap();
    assert_eq!(cancelled.order().status(), OrderStatus::RefundPending);
    assert_eq!(world.stock("general").await, (0, 0, 100));
    assert_eq!(world.payment(&paying).await.status(), PaymentStatus::RefundPending);
    // Sent at once, and again at growing intervals, until it is acknowledged.
    for sent in 1..5 {
        world.eventually("the refund is sent", || async { world.script.refund_calls() >= sent }).await;
        world.advance(Duration::from_secs(60));
    }
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::RefundPending);
    world.script.set_refunds_down(false);
    world.advance(Duration::from_secs(60));
    world.eventually_order(&order.id, OrderStatus::Refunded).await;
    assert_eq!(world.payment(&paying).await.status(), PaymentStatus::Refunded);
    assert_eq!(world.script.refunds(&paying.payment()), 1);
    // The answer stays what the cancellation made.
    let replay = world.cancel(Some(&intent), 2, &order.id).await.unwrap();
    assert_eq!((replay.order(), replay.replayed), (cancelled.order(), true));
}

async fn cancelling_a_confirmed_order_refunds_nothing(world: World) {
    let order = world.ordered(2).await;
    world.confirm(None, 0, &order.id).await.unwrap().order();
    assert_eq!(world.cancel(None, 0, &order.id).await.unwrap().order().status(), OrderStatus::Cancelled);
    assert_eq!(world.stock("general").await, (0, 0, 100));
    assert_eq!(world.script.refund_calls(), 0);
}

async fn a_ticket_lets_in_once_and_remembers_when(world: World) {
    let order = world.ordered(2).await;
    let (ticket, intent) = (&order.tickets[0].id, Intent::new());
    let refused = world.check_in(Some(&intent), 1, ticket).await.unwrap();
    assert_eq!(refused.refusal(), (Label::NoEffect, RefusalReason::NotPaid));
    world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap();
    let first = world.check_in(Some(&intent), 2, ticket).await.unwrap();
    let used = |answer: &proto::Answer| match answer.result.clone().unwrap().kind {
        Some(Kind::CheckIn(used)) if answer.label() == Label::Final => (used.already_used, used.used_at.unwrap()),
        other => panic!("{other:?}"),
    };
    assert!(!used(&first).0);
    world.advance(Duration::from_secs(60));
    let again = world.check_in(None, 0, ticket).await.unwrap();
    assert_eq!(used(&again), (true, used(&first).1));
    // Its own key goes on saying what it was told first; another key is told that it was used.
    assert_eq!(used(&world.check_in(Some(&intent), 3, ticket).await.unwrap()), used(&first));
    assert_eq!(used(&world.check_in(Some(&Intent::new()), 1, ticket).await.unwrap()), used(&again));
    let statuses: Vec<_> = world.order(&order.id).await.tickets.iter().map(|ticket| ticket.status()).collect();
    assert_eq!(statuses, [TicketStatus::Used, TicketStatus::Valid]);
    let cancelled = world.cancel(None, 0, &order.id).await.unwrap();
    assert_eq!(cancelled.refusal(), (Label::NoEffect, RefusalReason::NotCancellable));
    assert_eq!(world.check_in(None, 0, "no-such-ticket").await.unwrap().refusal().1, RefusalReason::NotFound);
}

async fn ten_confirmations_at_once_confirm_once(world: World) {
    let order = world.ordered(3).await;
    let answers = futures::future::join_all((0..10).map(|_| world.confirm(None, 0, &order.id))).await;
    let finals = answers.into_iter().filter(|answer| answer.as_ref().unwrap().label() == Label::Final).count();
    assert_eq!(finals, 1);
    assert_eq!(world.stock("general").await, (3, 0, 97));
}

async fn a_payment_link_lasts_as_long_as_its_hold(world: World) {
    let order = world.ordered(1).await;
    let link = async |tenant: &str, id: &str| {
        let request = proto::CreatePaymentLinkRequest { tenant: tenant.to_owned(), order_id: id.to_owned() };
        world.client.clone().create_payment_link(request).await.unwrap().into_inner().outcome.unwrap()
    };
    let reason = |outcome| match outcome {
        Link::Refused(refusal) => refusal.reason(),
        Link::Link(link) => panic!("{link:?}"),
    };
    match link(TENANT, &order.id).await {
        Link::Link(made) => {
            assert_eq!(made.expires_at, order.hold_expires_at);
            assert!(made.url.starts_with(&format!("http://127.0.0.1:8080/pay/{}?expires=", order.id)), "{}", made.url);
        }
        Link::Refused(refusal) => panic!("{refusal:?}"),
    }
    assert_eq!(reason(link("demo-b", &order.id).await), RefusalReason::NotFound);
    assert_eq!(reason(link(TENANT, "nothing").await), RefusalReason::NotFound);
    world.advance(HOLD);
    assert_eq!(reason(link(TENANT, &order.id).await), RefusalReason::NotPending);
}
