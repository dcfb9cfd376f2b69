//! Seats: never oversold, free again in time.

use std::time::Duration;

use idem_proto::orders::v1::{
    Label, OrderStatus, RefusalReason, put_ticket_type_response::Outcome as Put, result::Kind,
};

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World},
};

on_both_stores!(
    two_hundred_buyers_share_ten_seats,
    a_hold_that_is_over_is_free_at_once_and_swept_without_traffic,
    a_hundred_abandoned_holds_give_everything_back,
    capacity_never_falls_below_what_is_in_use,
    orders_in_opposite_sequence_do_not_block_each_other,
    the_sum_of_everything_holds_under_a_mixed_load,
);

async fn two_hundred_buyers_share_ten_seats(world: World) {
    world.put("rare", 10, 100).await;
    let intents: Vec<Intent> = (0..200).map(|_| Intent::new()).collect();
    let items = [("rare", 2)];
    let answers =
        futures::future::join_all(intents.iter().map(|intent| world.place_of(intent, 1, "demo", &items))).await;
    let (mut orders, mut sold_out) = (0, 0);
    for answer in answers {
        let answer = answer.unwrap();
        match answer.result.clone().and_then(|result| result.kind) {
            Some(Kind::Order(_)) => orders += 1,
            _ => {
                assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::SoldOut));
                sold_out += 1;
            }
        }
    }
    assert_eq!((orders, sold_out), (5, 195));
    assert_eq!(world.stock("rare").await, (0, 10, 0));
}

async fn a_hold_that_is_over_is_free_at_once_and_swept_without_traffic(world: World) {
    world.put("general", 50, 1000).await;
    let order = world.ordered(50).await;
    world.advance(HOLD - Duration::from_secs(10));
    assert_eq!(world.stock("general").await, (0, 50, 0));
    world.advance(Duration::from_secs(10));
    assert_eq!(world.stock("general").await, (0, 0, 50), "reads do not wait for the sweeper");
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Expired);
    let next = world.ordered(50).await;
    world.advance(HOLD);
    world.eventually_order(&next.id, OrderStatus::Expired).await;
}

async fn a_hundred_abandoned_holds_give_everything_back(world: World) {
    let intents: Vec<Intent> = (0..100).map(|_| Intent::new()).collect();
    futures::future::join_all(intents.iter().map(|intent| world.place(intent, 1, 1))).await;
    assert_eq!(world.stock("general").await, (0, 100, 0));
    world.advance(HOLD);
    // All at once, while the sweeper is at work, too.
    let answers = futures::future::join_all((0..10).map(|_| async { world.place(&Intent::new(), 1, 10).await })).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().order().status() == OrderStatus::Pending));
    assert_eq!(world.stock("general").await, (0, 100, 0));
}

async fn capacity_never_falls_below_what_is_in_use(world: World) {
    world.paid(2).await;
    world.ordered(3).await;
    assert!(matches!(world.put("general", 5, 1000).await.outcome, Some(Put::Updated(_))));
    match world.put("general", 4, 1000).await.outcome {
        Some(Put::Refused(refusal)) => assert_eq!(refusal.reason(), RefusalReason::CapacityInUse),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.stock("general").await, (2, 3, 0));
    // A hold that is over is no use of a seat.
    world.advance(HOLD);
    match world.put("general", 2, 1000).await.outcome {
        Some(Put::Updated(updated)) => assert_eq!((updated.sold, updated.held, updated.available), (2, 0, 0)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(world.put("new", 1, 1).await.outcome, Some(Put::Created(_))));
    assert!(matches!(world.put("new", 1, 1).await.outcome, Some(Put::Updated(_))));
}

async fn orders_in_opposite_sequence_do_not_block_each_other(world: World) {
    world.put("a", 1000, 1).await;
    world.put("b", 1000, 1).await;
    let orders = (0..100).map(|at| {
        let world = &world;
        async move {
            let items = if at % 2 == 0 { [("a", 1), ("b", 1)] } else { [("b", 1), ("a", 1)] };
            let order = world.place_of(&Intent::new(), 1, "demo", &items).await.unwrap().order();
            world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap().payment();
            if at % 3 == 0 {
                world.cancel(None, 0, &order.id).await.unwrap().order();
            }
        }
    });
    futures::future::join_all(orders).await;
    assert_eq!(world.stock("a").await, (66, 0, 934));
    assert_eq!(world.stock("b").await, (66, 0, 934));
}

/// Whatever buyers do at once, the counters are the sum of the orders.
async fn the_sum_of_everything_holds_under_a_mixed_load(world: World) {
    world.put("rare", 20, 100).await;
    let buyers = (0..60).map(|at: u32| {
        let world = &world;
        async move {
            let answer = world.place_of(&Intent::new(), 1, "demo", &[("rare", 1 + at % 3)]).await.unwrap();
            let Some(Kind::Order(order)) = answer.result.and_then(|result| result.kind) else { return None };
            match at % 5 {
                0 => drop(world.confirm(None, 0, &order.id).await.unwrap()),
                1 => drop(world.cancel(None, 0, &order.id).await.unwrap()),
                2 => drop(world.pay(&Intent::new(), 1, &order.id, "pm_approved").await.unwrap()),
                3 => drop(world.pay(&Intent::new(), 1, &order.id, "pm_declined").await.unwrap()),
                _ => {}
            }
            let (sold, held, available) = world.stock("rare").await;
            assert!(sold >= 0 && held >= 0 && available >= 0 && sold + held <= 20);
            Some(order.id)
        }
    });
    let orders = futures::future::join_all(buyers).await;
    let (mut sold, mut held) = (0, 0);
    for id in orders.into_iter().flatten() {
        let order = world.order(&id).await;
        let seats = order.tickets.len() as i64;
        match order.status() {
            OrderStatus::Paid => sold += seats,
            OrderStatus::Pending => held += seats,
            _ => {}
        }
    }
    assert_eq!(world.stock("rare").await, (sold, held, 20 - sold - held));
}
