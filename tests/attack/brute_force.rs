//! Guessing API keys.

use e2e::{Store, World};
use futures::StreamExt as _;
use http::Method;

use crate::bystander::Bystander;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_learn_nothing_and_keep_nobody_out() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let order = world.place("mine", 1).await;
    // Near the truth and far from it, at things that are there and that are not.
    let near = ["sk_demo_", "sk_demo_A", "sk_demo_aa", "sk_demo_a x"];
    let guesses = (0..2000).map(|n| if n % 4 == 0 { near[n / 4 % 4].to_owned() } else { format!("sk_{n:032x}") });
    let paths = [format!("/v1/orders/{order}"), "/v1/orders/nothing".into(), "/v1/idempotency-keys/mine".into()];
    let world = &world;
    let answers: Vec<_> = futures::stream::iter(guesses.enumerate())
        .map(|(n, guess)| {
            let ask = world.ask(Method::GET, &paths[n % 3]).api_key("");
            ask.header("authorization", &format!("Bearer {guess}")).send()
        })
        .buffered(32)
        .collect()
        .await;
    let mut told = std::collections::BTreeSet::new();
    for answer in answers {
        let mut problem = answer.expect_problem(401, "unauthorized", None, false).json();
        problem.as_object_mut().unwrap().remove("traceId");
        told.insert(problem.to_string());
    }
    assert_eq!(told.len(), 1, "every guess is told the same: {told:?}");
    bystander.was_served().await;
    world.stop().await;
}
