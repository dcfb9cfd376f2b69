//! Commands that came in one call: one write for all of them, and each its own truth.

use std::time::Duration;

use chassis::deadline::Deadline;
use idem_core::{Answer, AttemptId, Command, Grant};
use idem_service::engine::{EngineError, Outcome};
use idem_service::store::KeyId;
use tokio::time::Instant;

use crate::double::Fault::{Hangs, Refused, ReplyLost};
use crate::world::{Expect, World, attempt, key, reserve, response};

fn reserves(names: &[&str]) -> Vec<(KeyId, Command)> {
    names.iter().map(|name| (key(name), reserve(attempt(), "asked"))).collect()
}

fn complete(name: &str, grant: Grant) -> (KeyId, Command) {
    let Grant { operation_id, token, .. } = grant;
    (key(name), Command::Complete { operation_id, token, response: response(201) })
}

fn all(outcomes: Vec<Result<Outcome, EngineError>>) -> Vec<Outcome> {
    outcomes.into_iter().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn fresh_keys_are_reserved_in_one_write_and_completed_in_another() {
    let world = World::new();
    let names = ["a", "b", "c", "d", "e"];
    let grants: Vec<Grant> = all(world.each(&reserves(&names), None).await).iter().map(Expect::granted).collect();
    assert_eq!(world.store.take_calls(), (0, 1));
    let completes: Vec<_> = names.iter().zip(grants).map(|(name, grant)| complete(name, grant)).collect();
    let completed = all(world.each(&completes, None).await);
    assert!(completed.iter().all(|outcome| outcome.answer == Answer::Completed), "{completed:?}");
    assert_eq!(world.store.take_calls(), (0, 1));
}

#[tokio::test]
async fn each_hears_the_truth_about_its_own_key() {
    let world = World::new();
    let elsewhere = world.replica();
    elsewhere.reserve("held").await.granted();
    let grant = elsewhere.reserve("done").await.granted();
    elsewhere.complete("done", grant, 202).await;
    world.store.take_calls();
    let outcomes = all(world.each(&reserves(&["held", "fresh", "done"]), None).await);
    assert_eq!(outcomes[0].answer, Answer::InProgress);
    outcomes[1].granted();
    assert_eq!(outcomes[2].replayed_status(), 202);
    assert_eq!(world.store.take_calls(), (0, 1));
}

#[tokio::test]
async fn a_repeat_in_the_same_call_is_a_repeat() {
    let world = World::new();
    let same = AttemptId(uuid::Uuid::new_v4());
    let asked: Vec<_> = [same, same, attempt()].map(|attempt| (key("k"), reserve(attempt, "asked"))).into();
    let outcomes = all(world.each(&asked, None).await);
    assert_eq!(outcomes[0].granted(), outcomes[1].granted());
    assert_eq!(outcomes[2].answer, Answer::InProgress);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_met_again_by_each_as_its_own_commit() {
    let world = World::new();
    world.store.fail(&[ReplyLost]);
    let outcomes = all(world.each(&reserves(&["a", "b", "c"]), None).await);
    assert!(outcomes.iter().map(Expect::granted).all(|grant| grant.token.0 == 1), "{outcomes:?}");
    world.store.fail(&[Refused]);
    let outcomes = all(world.each(&reserves(&["d", "e"]), None).await);
    assert!(outcomes.iter().map(Expect::granted).all(|grant| grant.attempts == 1), "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_is_given_up_once_for_all() {
    let world = World::new();
    world.store.fail(&[Hangs]);
    let begun = Instant::now();
    let hung = world.each(&reserves(&["a", "b"]), None).await;
    assert!(hung.iter().all(|hung| matches!(hung, Err(EngineError::TimedOut))), "{hung:?}");
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_past_the_deadline() {
    let world = World::new();
    let late = world.each(&reserves(&["a", "b"]), Some(Deadline::after(Duration::ZERO))).await;
    assert!(late.iter().all(|late| matches!(late, Err(EngineError::DeadlineOver))), "{late:?}");
    assert_eq!(world.store.take_calls(), (0, 0));
}
