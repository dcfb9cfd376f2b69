//! Orders that come at once are placed together, and each has the end it would have had alone.

use futures::future::join_all;
use idem_proto::orders::v1::{
    Answer, ErrorReason, Failure, Label, PlaceOrderItem, PlaceOrderRequest, PlaceOrdersItem, PlaceOrdersRequest,
    RefusalReason, place_orders_outcome::Outcome, result::Kind,
};
use tonic::{Code, Status};

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World, why},
};

on_both_stores!(
    a_hundred_orders_share_sixty_seats,
    orders_of_different_types_take_their_own,
    orders_in_one_call_end_as_they_would_alone,
    a_call_with_no_order_or_too_many_is_refused,
    seats_of_holds_that_are_over_are_taken_by_a_crowd,
    one_operation_in_one_call_acts_once,
);

fn item(intent: &Intent, token: i64, items: &[(&str, u32)]) -> PlaceOrdersItem {
    let of = |(id, quantity): &(&str, u32)| PlaceOrderItem { ticket_type_id: (*id).to_owned(), quantity: *quantity };
    let items = items.iter().map(of).collect();
    let order = PlaceOrderRequest { operation: intent.with(token), venue_id: "demo".into(), items };
    PlaceOrdersItem { order: Some(order), ..Default::default() }
}

async fn call(world: &World, items: Vec<PlaceOrdersItem>) -> Result<Vec<Outcome>, Status> {
    let answered = world.client.clone().place_orders(PlaceOrdersRequest { items }).await?.into_inner();
    Ok(answered.outcomes.into_iter().map(|outcome| outcome.outcome.unwrap()).collect())
}

fn answer(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Response(response) => response.answer.clone().unwrap(),
        Outcome::Failure(failure) => panic!("{failure:?}"),
    }
}

fn failure(outcome: &Outcome) -> (Code, ErrorReason) {
    match outcome {
        Outcome::Failure(failure) => (Code::from_i32(failure.code), failure.reason()),
        Outcome::Response(response) => panic!("{response:?}"),
    }
}

fn is_order(answer: &Answer) -> bool {
    matches!(answer.result.as_ref().and_then(|result| result.kind.as_ref()), Some(Kind::Order(_)))
}

async fn a_hundred_orders_share_sixty_seats(world: World) {
    world.put("rare", 60, 100).await;
    let place = || async { world.place_of(&Intent::new(), 1, "demo", &[("rare", 1)]).await.unwrap() };
    let answers = join_all((0..100).map(|_| place())).await;
    let (placed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| is_order(answer));
    assert_eq!((placed.len(), refused.len()), (60, 40));
    for answer in refused {
        assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::SoldOut));
    }
    assert_eq!(world.stock("rare").await, (0, 60, 0));
    let mut tickets: Vec<_> = placed.iter().flat_map(|answer| answer.order().tickets).map(|ticket| ticket.id).collect();
    tickets.sort();
    tickets.dedup();
    assert_eq!(tickets.len(), 60, "a ticket of its own for each");
}

async fn orders_of_different_types_take_their_own(world: World) {
    for (id, capacity) in [("a", 30), ("b", 20), ("c", 10)] {
        world.put(id, capacity, 100).await;
    }
    let wishes: [&[(&str, u32)]; 4] = [&[("a", 1)], &[("c", 1), ("b", 1)], &[("b", 1), ("a", 2)], &[("c", 2)]];
    let items = (0..60).map(|at| item(&Intent::new(), 1, wishes[at % 4])).collect();
    let outcomes = call(&world, items).await.unwrap();
    let (mut taken, mut sold_out) = ([0; 3], 0);
    for (outcome, at) in outcomes.iter().zip(0..) {
        let answer = answer(outcome);
        if !is_order(&answer) {
            assert_eq!(answer.refusal(), (Label::NoEffect, RefusalReason::SoldOut));
            sold_out += 1;
            continue;
        }
        let order = answer.order();
        let asked: Vec<_> = wishes[at % 4].iter().map(|(id, quantity)| ((*id).to_owned(), *quantity)).collect();
        let got: Vec<_> = order.items.iter().map(|item| (item.ticket_type_id.clone(), item.quantity)).collect();
        assert_eq!(got, asked, "items stay in the buyer's sequence");
        for (id, quantity) in wishes[at % 4] {
            taken[usize::from(id.as_bytes()[0] - b'a')] += i64::from(*quantity);
        }
    }
    assert!(sold_out > 0 && taken.iter().all(|taken| *taken > 0), "{taken:?} and {sold_out} sold out");
    for (id, capacity, taken) in [("a", 30, taken[0]), ("b", 20, taken[1]), ("c", 10, taken[2])] {
        assert_eq!(world.stock(id).await, (0, taken, capacity - taken), "{id}");
    }
}

async fn orders_in_one_call_end_as_they_would_alone(world: World) {
    world.put("rare", 3, 100).await;
    let [known, fenced, good, large] = [Intent::new(), Intent::new(), Intent::new(), Intent::new()];
    let first = world.place_of(&known, 1, "demo", &[("rare", 1)]).await.unwrap();
    world.lookup(&fenced, 5).await.unwrap();
    let mut nameless = item(&Intent::new(), 1, &[("rare", 1)]);
    nameless.order.as_mut().unwrap().venue_id = String::new();
    let items = vec![
        item(&known, 2, &[("rare", 1)]),
        item(&fenced, 4, &[("rare", 1)]),
        nameless.clone(),
        item(&large, 1, &[("rare", 3)]),
        item(&known, 3, &[("rare", 2)]),
        item(&Intent::new(), 1, &[("nothing", 1)]),
        item(&good, 1, &[("rare", 2)]),
        PlaceOrdersItem::default(),
    ];
    let outcomes = call(&world, items).await.unwrap();
    let replay = answer(&outcomes[0]);
    assert_eq!((replay.replayed, replay.order()), (true, first.order()));
    assert_eq!(failure(&outcomes[1]), (Code::FailedPrecondition, ErrorReason::StaleFencingToken));
    assert_eq!(failure(&outcomes[2]), (Code::InvalidArgument, ErrorReason::InvalidField));
    assert_eq!(answer(&outcomes[3]).refusal(), (Label::NoEffect, RefusalReason::SoldOut));
    assert_eq!(failure(&outcomes[4]), (Code::FailedPrecondition, ErrorReason::OperationReused));
    assert_eq!(answer(&outcomes[5]).refusal(), (Label::NoEffect, RefusalReason::NotFound));
    assert_eq!(answer(&outcomes[6]).order().tickets.len(), 2);
    assert_eq!(failure(&outcomes[7]), (Code::InvalidArgument, ErrorReason::InvalidField));
    assert_eq!(world.stock("rare").await, (0, 3, 0));
    // To the last byte what the single call says.
    let alone = world.client.clone().place_order(nameless.order.unwrap()).await.unwrap_err();
    let Outcome::Failure(Failure { code, message, details, .. }) = &outcomes[2] else { panic!("it was refused") };
    assert_eq!((*code, message.as_str(), &details[..]), (alone.code() as i32, alone.message(), alone.details()));
    // A later repeat finds what was kept.
    let again = world.place_of(&good, 1, "demo", &[("rare", 2)]).await.unwrap();
    assert_eq!(again, answer(&outcomes[6]));
}

async fn a_call_with_no_order_or_too_many_is_refused(world: World) {
    assert_eq!(why(call(&world, vec![]).await), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    let many = vec![item(&Intent::new(), 1, &[("general", 1)]); 501];
    assert_eq!(why(call(&world, many).await), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    assert_eq!(world.stock("general").await, (0, 0, 100));
}

async fn seats_of_holds_that_are_over_are_taken_by_a_crowd(world: World) {
    let items = (0..100).map(|_| item(&Intent::new(), 1, &[("general", 1)])).collect();
    assert!(call(&world, items).await.unwrap().iter().all(|outcome| is_order(&answer(outcome))));
    world.advance(HOLD);
    let items = (0..110).map(|_| item(&Intent::new(), 1, &[("general", 1)])).collect();
    let outcomes = call(&world, items).await.unwrap();
    assert_eq!(outcomes.iter().filter(|outcome| is_order(&answer(outcome))).count(), 100);
    assert_eq!(world.stock("general").await, (0, 100, 0));
}

async fn one_operation_in_one_call_acts_once(world: World) {
    let intent = Intent::new();
    let items = (0..40).map(|at| item(&intent, 1 + at / 10, &[("general", 1)])).collect();
    let outcomes = call(&world, items).await.unwrap();
    // Whoever came after a higher token is fenced; everybody else has the one order.
    let mut orders: Vec<_> = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Response(_)))
        .map(|outcome| answer(outcome).order().id)
        .collect();
    assert!(orders.len() >= 10, "{outcomes:?}");
    orders.dedup();
    assert_eq!(orders.len(), 1);
    for outcome in outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Failure(_))) {
        assert_eq!(failure(outcome), (Code::FailedPrecondition, ErrorReason::StaleFencingToken));
    }
    assert_eq!(world.stock("general").await, (0, 1, 99));
}
