//! The store fails, loses replies, hangs or is always faster.

use std::time::Duration;

use chassis::deadline::Deadline;
use idem_core::{Answer, State};
use idem_service::engine::EngineError;
use idem_service::store::StoreError;
use tokio::time::Instant;

use crate::double::Fault::{AlwaysLost, Hangs, Refused, ReplyLost};
use crate::world::{Expect, World, attempt, key, reserve};

#[tokio::test(start_paused = true)]
async fn lost_commit_is_met_again_as_ones_own() {
    let world = World::new();
    world.store.fail(&[ReplyLost]);
    let grant = world.reserve("k").await.granted();
    assert_eq!((grant.token.0, grant.attempts), (1, 1));
    world.store.fail(&[ReplyLost]);
    assert_eq!(world.renew("k", grant).await.answer, Answer::Renewed);
    world.store.fail(&[ReplyLost]);
    assert_eq!(world.complete("k", grant, 201).await.answer, Answer::Completed);
    let grant = world.reserve("l").await.granted();
    world.store.fail(&[ReplyLost]);
    assert_eq!(world.abandon("l", grant).await.answer, Answer::Abandoned);
    world.store.fail(&[ReplyLost]);
    let heir = world.reclaim("l", (grant.operation_id, grant.token)).await.granted();
    assert_eq!(heir.token, grant.token.next());
    world.store.fail(&[ReplyLost]);
    assert_eq!(world.release("l", heir).await.answer, Answer::Released);
}

#[tokio::test(start_paused = true)]
async fn blip_is_repeated_and_an_outage_is_told() {
    let world = World::new();
    world.store.fail(&[Refused, Refused]);
    world.reserve("k").await.granted();
    world.store.fail(&[Refused, Refused, Refused]);
    let refused = world.engine.carry_out(&key("l"), reserve(attempt(), "asked"), None).await;
    assert!(matches!(refused, Err(EngineError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    world.reserve("l").await.granted();
}

#[tokio::test(start_paused = true)]
async fn hand_made_settlement_is_never_repeated_and_so_audited_once() {
    let world = World::new();
    world.reserve("k").await.granted();
    world.store.fail(&[ReplyLost]);
    let resolved = world.resolve("k", State::Released).await;
    assert!(matches!(resolved, Err(EngineError::Store(StoreError::Unavailable(_)))), "{resolved:?}");
    assert_eq!(world.store.memory.audited().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_store_is_given_up_within_the_patience_or_the_deadline() {
    let world = World::new();
    world.store.fail(&[Hangs]);
    for (deadline, most) in [(None, 1500), (Some(500), 500), (Some(10_000), 1500)] {
        let begun = Instant::now();
        let deadline = deadline.map(Duration::from_millis).map(Deadline::after);
        let hung = world.engine.carry_out(&key("k"), reserve(attempt(), "asked"), deadline).await;
        assert!(matches!(hung, Err(EngineError::TimedOut)), "{hung:?}");
        assert!(begun.elapsed() < Duration::from_millis(most), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn call_past_its_deadline_starts_no_work() {
    let world = World::new();
    let over = Deadline::after(Duration::ZERO);
    let late = world.engine.carry_out(&key("k"), reserve(attempt(), "asked"), Some(over)).await;
    assert!(matches!(late, Err(EngineError::DeadlineOver)), "{late:?}");
    assert_eq!(world.store.take_calls(), (0, 0));
}

#[tokio::test]
async fn key_that_changes_at_every_round_is_given_up_after_sixteen() {
    let world = World::new();
    world.store.fail(&[AlwaysLost]);
    let contended = world.engine.carry_out(&key("k"), reserve(attempt(), "asked"), None).await;
    assert!(matches!(contended, Err(EngineError::Contended)), "{contended:?}");
    assert_eq!(world.store.take_calls(), (0, 16));
}
