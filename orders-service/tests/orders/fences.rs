//! Tokens: an older holder changes nothing, a repeat acts once, an operation id stands for one thing.

use std::time::Duration;

use idem_proto::orders::v1::{Label, OrderStatus, RefusalReason, lookup_response::Outcome as Found};
use tonic::Code;

use crate::{
    on_both_stores,
    world::{Intent, Says as _, World, why},
};

const STALE: (Code, &str) = (Code::FailedPrecondition, "STALE_FENCING_TOKEN");
const REUSED: (Code, &str) = (Code::FailedPrecondition, "OPERATION_REUSED");

on_both_stores!(
    a_repeat_gets_the_same_answer_and_a_later_holder_a_replay,
    a_refusal_is_repeated_to_its_token_and_executed_again_for_the_next,
    an_operation_id_stands_for_one_request,
    a_look_up_fences_an_operation_never_seen,
    a_concurrent_repeat_waits_for_the_first_and_charges_nothing,
    a_concurrent_repeat_out_of_time_knows_nothing,
    a_caller_who_goes_away_changes_nothing,
    a_superseded_charge_still_counts_and_is_made_once,
    a_hundred_repeats_at_once_act_once,
);

async fn a_repeat_gets_the_same_answer_and_a_later_holder_a_replay(world: World) {
    let intent = Intent::new();
    let first = world.place(&intent, 3, 2).await.unwrap();
    assert!(!first.replayed);
    assert_eq!(world.place(&intent, 3, 2).await.unwrap(), first);
    world.pay(&Intent::new(), 1, &first.order().id, "pm_approved").await.unwrap();
    // As it was then, not as it is now.
    let replay = world.place(&intent, 4, 2).await.unwrap();
    assert_eq!((replay.order(), replay.replayed), (first.order(), true));
    assert_eq!(why(world.place(&intent, 3, 2).await), (STALE.0, STALE.1.to_owned()));
    assert_eq!(world.stock("general").await, (2, 0, 98));
}

async fn a_refusal_is_repeated_to_its_token_and_executed_again_for_the_next(world: World) {
    world.put("rare", 2, 100).await;
    let (rival, intent) = (Intent::new(), Intent::new());
    let held = world.place_of(&rival, 1, "demo", &[("rare", 2)]).await.unwrap().order();
    let sold_out = world.place_of(&intent, 1, "demo", &[("rare", 1)]).await.unwrap();
    assert_eq!(sold_out.refusal(), (Label::NoEffect, RefusalReason::SoldOut));
    world.cancel(None, 0, &held.id).await.unwrap().order();
    assert_eq!(world.place_of(&intent, 1, "demo", &[("rare", 1)]).await.unwrap(), sold_out);
    let answer = world.place_of(&intent, 2, "demo", &[("rare", 1)]).await.unwrap();
    assert_eq!((answer.order().status(), answer.replayed), (OrderStatus::Pending, false));
}

async fn an_operation_id_stands_for_one_request(world: World) {
    let intent = Intent::new();
    let order = world.place(&intent, 1, 2).await.unwrap().order();
    let reused = (REUSED.0, REUSED.1.to_owned());
    assert_eq!(why(world.place(&intent, 2, 3).await), reused);
    assert_eq!(why(world.cancel(Some(&intent), 2, &order.id).await), reused);
    let stranger = Intent { tenant: "demo-b".to_owned(), ..intent.clone() };
    assert_eq!(why(world.place(&stranger, 2, 2).await), reused);
    // What was refused has not raised the token.
    assert!(world.place(&intent, 1, 2).await.is_ok());
}

async fn a_look_up_fences_an_operation_never_seen(world: World) {
    let intent = Intent::new();
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
    assert_eq!(why(world.place(&intent, 1, 1).await).1, STALE.1);
    assert_eq!(why(world.lookup(&intent, 1).await).1, STALE.1);
    world.place(&intent, 2, 1).await.unwrap().order();
}

async fn a_concurrent_repeat_waits_for_the_first_and_charges_nothing(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let first = world.pay(&intent, 1, &order.id, "pm_gated");
    let repeat = async {
        world
            .eventually("the charge is on its way", || async { world.script.charge_calls(&intent.payment()) == 1 })
            .await;
        let (answer, ()) = tokio::join!(world.pay(&intent, 1, &order.id, "pm_gated"), async {
            // Long enough for the repeat to have found the first at work; it would charge at once if it did not wait.
            tokio::time::sleep(Duration::from_millis(300)).await;
            world.script.open_gate();
        });
        answer
    };
    let (first, repeat) = tokio::join!(first, repeat);
    assert_eq!(first.unwrap(), repeat.unwrap());
    assert_eq!(world.script.charge_calls(&intent.payment()), 1);
}

async fn a_concurrent_repeat_out_of_time_knows_nothing(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let first = world.pay(&intent, 1, &order.id, "pm_gated");
    let repeat = async {
        world
            .eventually("the charge is on its way", || async { world.script.charge_calls(&intent.payment()) == 1 })
            .await;
        let answer = world.pay_within(Duration::from_millis(600), &intent, 1, &order.id, "pm_gated").await;
        world.script.open_gate();
        answer
    };
    let (first, repeat) = tokio::join!(first, repeat);
    assert!(repeat.unwrap().is_unknown());
    first.unwrap().payment();
}

async fn a_caller_who_goes_away_changes_nothing(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    tokio::select! {
        answer = world.pay(&intent, 1, &order.id, "pm_gated") => panic!("the gate is shut: {answer:?}"),
        () = world.eventually("the charge is on its way", || async { world.script.charge_calls(&intent.payment()) == 1 }) => {}
    }
    world.script.open_gate();
    world.eventually_order(&order.id, OrderStatus::Paid).await;
    assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Settled(_)));
}

async fn a_superseded_charge_still_counts_and_is_made_once(world: World) {
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let zombie = world.pay(&intent, 1, &order.id, "pm_gated");
    let heir = async {
        world
            .eventually("the charge is on its way", || async { world.script.charge_calls(&intent.payment()) == 1 })
            .await;
        // Not known now: the charge may land later, and it does.
        assert!(matches!(world.lookup(&intent, 2).await.unwrap(), Found::Unknown(_)));
        world.script.open_gate();
        world.eventually_order(&order.id, OrderStatus::Paid).await;
        world.pay(&intent, 2, &order.id, "pm_gated").await
    };
    let (zombie, heir) = tokio::join!(zombie, heir);
    let heir = heir.unwrap();
    assert_eq!(zombie.unwrap().payment(), heir.payment());
    assert_eq!(world.script.charge_calls(&intent.payment()), 1);
    assert_eq!(why(world.pay(&intent, 1, &order.id, "pm_gated").await).1, STALE.1);
}

async fn a_hundred_repeats_at_once_act_once(world: World) {
    let intent = Intent::new();
    let answers = futures::future::join_all((0..100).map(|_| world.place(&intent, 1, 1))).await;
    let first = answers[0].clone().unwrap();
    assert!(answers.into_iter().all(|answer| answer.unwrap() == first));
    assert_eq!(world.stock("general").await, (0, 1, 99));
}
