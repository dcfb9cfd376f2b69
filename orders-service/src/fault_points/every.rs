//! The loop over all points of a scenario: fail there, die there, and look at the end.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use fault_point::{Action, Crossing, Plan};
use futures::FutureExt as _;

use super::{
    ALL, Scenario,
    bench::Bench,
    stage::{Next, Stage, grant, new_operation},
};
use crate::outcome::Kind;

/// Longer than any play; one that meets it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn point_on_sqlite(scenario: &str) {
    point(&Bench::on_sqlite().await, &[Next::Client, Next::Reconciler], named(scenario)).await;
}

/// The reconciler makes no difference to the store, and this one is the slower of the two.
pub async fn point_on_postgres(scenario: &str, database: &str) {
    point(&Bench::on_postgres(database).await, &[Next::Client], named(scenario)).await;
}

/// Plays a scenario with nothing broken, and says which points it crosses.
pub async fn crossed(bench: &Bench, scenario: Scenario) -> Vec<Crossing> {
    if let Err(why) = play(bench, scenario, Next::Client, None).await {
        panic!("{} fails with nothing broken: {why}", scenario.name);
    }
    let of_interest =
        |crossing: &Crossing| scenario.only.is_none_or(|transaction| crossing.point.starts_with(transaction));
    bench.crossed().into_iter().filter(of_interest).collect()
}

async fn point(bench: &Bench, nexts: &[Next], scenario: Scenario) {
    let broken = broken(bench, nexts, scenario).await;
    assert!(broken.is_empty(), "{} ends wrongly {} times:\n{}", scenario.name, broken.len(), broken.join("\n"));
}

/// Every play that ended wrongly: what happened where, who went on, and what is wrong.
async fn broken(bench: &Bench, nexts: &[Next], scenario: Scenario) -> Vec<String> {
    let crossed = crossed(bench, scenario).await;
    assert!(!crossed.is_empty(), "{} crosses no point", scenario.name);
    let (mut plays, mut broken) = (0, Vec::new());
    for next in nexts.iter().copied() {
        for plan in crossed.iter().flat_map(plans) {
            plays += 1;
            if let Err(why) = play(bench, scenario, next, Some(plan.clone())).await {
                broken.push(format!("{plan}, then the {next:?}: {why}"));
            }
        }
    }
    println!("{}: {} crossings, {plays} plays, {} broken", scenario.name, crossed.len(), broken.len());
    broken
}

fn plans(crossing: &Crossing) -> Vec<Plan> {
    let actions = if crossing.is_fallible { &[Action::Fail, Action::Die][..] } else { &[Action::Die] };
    actions.iter().map(|action| crossing.plan(*action)).collect()
}

/// One play from an empty stage to the checked end, broken as planned.
async fn play(bench: &Bench, scenario: Scenario, next: Next, plan: Option<Plan>) -> Result<(), String> {
    let stage = Stage::new(bench, next, plan);
    let played = AssertUnwindSafe(tokio::time::timeout(PATIENCE, (scenario.play)(&stage))).catch_unwind().await;
    let is_spent = bench.watch.stop().is_spent;
    match played {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return Err(format!("it hangs for {PATIENCE:?}")),
        Err(panic) => return Err(said(&*panic)),
    }
    if !is_spent {
        return Err("the point was not reached".to_owned());
    }
    AssertUnwindSafe(stage.check_end()).catch_unwind().await.map_err(|panic| said(&*panic))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}

fn named(name: &str) -> Scenario {
    *ALL.iter().find(|scenario| scenario.name == name).expect("a scenario of this name")
}

/// The check itself is checked: a client that takes a new key for every try places two orders, and that is seen.
#[tokio::test]
async fn a_try_under_another_key_is_caught() {
    let scenario = Scenario {
        name: "an_order_is_placed_under_another_key_each_time",
        play: |stage| {
            Box::pin(async move {
                stage.put(4).await;
                stage.open();
                let place = |shop| async move {
                    let operation = new_operation();
                    let ask = stage.placing(operation, 1);
                    Ok((operation, ask(shop, grant(operation, 1)).await?))
                };
                let (operation, answer) = stage.insist("an order", place).await;
                stage.remember(operation, Kind::PlaceOrder, &stage.placing(operation, 1), answer);
            })
        },
        only: None,
    };
    let broken = broken(&Bench::on_sqlite().await, &[Next::Client], scenario).await;
    let seen: Vec<_> = broken.iter().map(|it| it.split(',').next().unwrap_or_default()).collect();
    let expected = [
        "place orders: committed#1=fail",
        "place orders: committed#1=die",
        "place order: placed#1=fail",
        "place order: placed#1=die",
    ];
    assert_eq!(seen, expected, "{broken:#?}");
    assert!(broken.iter().all(|it| it.contains("one order for each key")), "{broken:#?}");
}
