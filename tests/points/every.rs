//! The loop over all points of a scenario: fail there, die there, and look at the end.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use e2e::{Store, World};
use fault_point::{Action, Crossing, Plan, Watch, watch};
use futures::FutureExt as _;

use crate::{
    ALL, Scenario,
    stage::{self, Stage},
};

/// How often a play is repeated whose point lay on another way, because the reconciler or the watch was faster than the client.
const REPEATS: usize = 5;

/// Longer than any play; one that meets it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn point(store: Store, name: &str) {
    let scenario = *ALL.iter().find(|scenario| scenario.name == name).expect("a scenario of this name");
    let watch = watch();
    watch.stop();
    let world = world(store).await;
    let crossed = crossed(&world, &watch, scenario).await;
    assert!(!crossed.is_empty(), "{name} crosses no point");
    let (mut plays, mut repeated, mut broken) = (0, 0, Vec::new());
    for plan in crossed.iter().flat_map(plans) {
        // What happens anyway cannot happen otherwise.
        if scenario.given().iter().any(|given| (&given.point, given.nth) == (&plan.point, plan.nth)) {
            continue;
        }
        plays += 1;
        let mut end = play(&world, &watch, scenario, Some(plan.clone())).await;
        for _ in 0..REPEATS {
            if end != Err(stage::NOT_REACHED.to_owned()) {
                break;
            }
            repeated += 1;
            end = play(&world, &watch, scenario, Some(plan.clone())).await;
        }
        if let Err(why) = end {
            broken.push(format!("{plan}: {why}"));
        }
    }
    world.stop().await;
    println!("{name}: {} crossings, {plays} plays, {repeated} repeated, {} broken", crossed.len(), broken.len());
    assert!(broken.is_empty(), "{name} ends wrongly {} times:\n{}", broken.len(), broken.join("\n"));
}

/// A world in which holds do not lapse while leases do, and no webhook is faster than the call that it is about.
pub async fn world(store: Store) -> World {
    let world = World::start_with(store, |settings| settings.hold_ttl = Duration::from_secs(30 * 24 * 3600)).await;
    world.lose_webhooks().await;
    world
}

/// Plays a scenario with nothing broken but what is given, and says which points it crosses.
pub async fn crossed(world: &World, watch: &Watch, scenario: Scenario) -> Vec<Crossing> {
    if let Err(why) = play(world, watch, scenario, None).await {
        panic!("{} fails with nothing broken: {why}", scenario.name);
    }
    stage::crossed(watch)
}

fn plans(crossing: &Crossing) -> Vec<Plan> {
    let actions = if crossing.is_fallible { &[Action::Fail, Action::Die][..] } else { &[Action::Die] };
    actions.iter().map(|action| crossing.plan(*action)).collect()
}

/// One play from an empty stage to the checked end, broken as planned.
async fn play(world: &World, watch: &Watch, scenario: Scenario, plan: Option<Plan>) -> Result<(), String> {
    let stage = Stage::set(world, watch, scenario.given().into_iter().chain(plan).collect()).await;
    let played = async {
        (scenario.play)(&stage).await;
        stage.close();
        stage.check_end().await;
    };
    let played = AssertUnwindSafe(tokio::time::timeout(PATIENCE, played)).catch_unwind().await;
    watch.stop();
    match played {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("it hangs for {PATIENCE:?}")),
        Err(panic) => Err(said(&*panic)),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked").to_owned()
}
