//! A holder that somebody else has fenced: its late calls change nothing, and its answer is discarded.

use idem_core::StateName;
use idem_layer::ports::Label;

use crate::{
    scripted::{Act, Gate, Say, created, pending, settled, sold_out, unknown},
    world::{Answer, World, post},
};

/// The inner service does `act`; before the layer hears of it somebody else takes the key over, and completes it if `is_completed`.
async fn taken_over_meanwhile(act: Act, say: Option<Say>, is_completed: bool) -> (World, Answer) {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(act)));
    if let Some(say) = say {
        world.record.will(say);
    }
    let request = world.start(post("k"));
    gate.arrived().await;
    let heir = world.fenced("k");
    if is_completed {
        world.completed_by("k", heir, "theirs");
    }
    gate.open();
    let answer = request.await.unwrap();
    assert_eq!(world.inner.executions(), 1);
    (world, answer)
}

/// Each way to finish: with Complete, Release and Abandon, after an execution and after a question.
fn ways() -> Vec<(Act, Option<Say>)> {
    vec![
        (created(), None),
        (sold_out(), None),
        (pending(), None),
        (unknown(), None),
        (Act::Fail, Some(settled(201, "{}", Label::Final))),
        (unknown(), Some(Say::Fenced)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_superseded_holder_gives_the_stored_answer_as_a_replay() {
    for (act, say) in ways() {
        let (world, answer) = taken_over_meanwhile(act, say, true).await;
        assert_eq!((answer.status, answer.is_replay(), &answer.body[..]), (200, true, &b"theirs"[..]));
        assert!(answer.header("idempotency-key-expires").is_some());
        assert_eq!(world.post("k").await.body, "theirs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_superseded_holder_without_a_stored_answer_is_in_progress() {
    for (act, say) in ways() {
        let (world, answer) = taken_over_meanwhile(act, say, false).await;
        answer.assert_problem(409, "conflict/request_in_progress");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!((world.state("k"), world.token("k")), (Some(StateName::InProgress), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_background_complete_changes_nothing_after_a_reclaim() {
    let world = World::new();
    world.store.fault(crate::memory::Rpc::Complete, crate::memory::Fault::Hangs, 2);
    let answer = world.post("k").await;
    assert_eq!(answer.status, 201);
    let heir = world.fenced("k");
    tokio::time::sleep(crate::world::LEASE / 2).await;
    assert_eq!((world.state("k"), world.token("k")), (Some(StateName::InProgress), 3));
    world.completed_by("k", heir, "theirs");
    assert_eq!(world.post("k").await.body, "theirs");
}
