//! An attempt that did not finish: fence, then ask, then act.

use std::time::Duration;

use idem_core::{FencingToken, StateName};
use idem_layer::ports::{Found, Label};
use tokio::time::Instant;

use crate::{
    memory::{Fault, Rpc},
    scripted::{Act, Gate, Say, created, not_run, pending, settled, sold_out, unknown},
    world::{UPSTREAM, World, post, token},
};

#[tokio::test(start_paused = true)]
async fn while_the_lease_is_alive_the_request_is_in_progress() {
    let world = World::new();
    world.reserved_by_the_dead("k");
    let answer = world.post("k").await;
    answer.assert_problem(409, "conflict/request_in_progress");
    assert_eq!((answer.header("retry-after"), answer.header("idempotency-key")), (Some("1"), Some("k")));
    assert_eq!(answer.json()["retryable"], true);
    assert_eq!(world.inner.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_settled_operation_is_completed_and_answered_as_a_replay() {
    let world = World::new();
    let dead = world.stale("k").await;
    world.record.will(settled(201, r#"{"made":7}"#, Label::Final));
    let answer = world.post("k").await;
    assert_eq!((answer.status, &answer.body[..]), (201, &br#"{"made":7}"#[..]));
    assert!(answer.is_replay());
    assert!(answer.header("idempotency-key-expires").is_some());
    assert_eq!(world.state("k"), Some(StateName::Completed));
    // The fence was up before the question was asked.
    assert_eq!(world.record.asked(), [(dead.operation_id, token(2))]);
    assert_eq!(world.inner.executions(), 0);
    assert_eq!(*world.links.lock().unwrap(), ["00-the-dead-01"]);
    assert_eq!(world.post("k").await.body, answer.body);
}

#[tokio::test(start_paused = true)]
async fn an_operation_settled_without_effect_is_released_and_answered() {
    let world = World::new();
    world.stale("k").await;
    world.record.will(settled(409, r#"{"error":"sold_out"}"#, Label::NoEffect));
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay()), (409, true));
    assert_eq!(answer.header("idempotency-key-expires"), None);
    assert_eq!((world.state("k"), world.inner.executions()), (Some(StateName::Released), 0));
    // The key executes again at once.
    assert_eq!(world.post("k").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_pending_operation_goes_back_in_doubt() {
    let world = World::new();
    world.stale("k").await;
    for nth in 2..5 {
        world.record.will(Say::Found(Found::Pending));
        let answer = world.post("k").await;
        answer.assert_problem(409, "conflict/outcome_pending");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert_eq!((world.state("k"), world.token("k")), (Some(StateName::InDoubt), nth));
    }
    assert_eq!(world.inner.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn when_nobody_can_be_asked_nothing_executes() {
    for say in [Say::Unreachable, Say::Panic, Say::Hang] {
        let world = World::new();
        world.stale("k").await;
        world.record.will(say);
        let start = Instant::now();
        world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
        assert!(start.elapsed() <= UPSTREAM);
        assert_eq!((world.state("k"), world.inner.executions()), (Some(StateName::InDoubt), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_at_the_system_of_record_means_that_somebody_else_is_at_it() {
    let world = World::new();
    world.stale("k").await;
    world.record.will(Say::Fenced);
    world.post("k").await.assert_problem(409, "conflict/request_in_progress");
    assert_eq!(world.inner.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_unknown_everywhere_is_executed_under_its_id_and_the_new_token() {
    let world = World::new();
    let dead = world.stale("k").await;
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    let permit = world.inner.seen()[0].permit.unwrap();
    assert_eq!((permit.operation_id, permit.token), (dead.operation_id, token(2)));
    assert_eq!(world.record.asked().len(), 1);
    assert_eq!(world.state("k"), Some(StateName::Completed));
}

#[tokio::test(start_paused = true)]
async fn an_execution_after_recovery_follows_the_same_rules() {
    let table = [
        (sold_out(), StateName::Released, 409),
        (pending(), StateName::InDoubt, 202),
        (unknown(), StateName::InDoubt, 503),
        (Act::Fail, StateName::InDoubt, 503),
    ];
    for (act, state, status) in table {
        let world = World::new();
        world.stale("k").await;
        world.inner.will(act);
        assert_eq!(world.post("k").await.status, status);
        assert_eq!((world.state("k"), world.inner.executions()), (Some(state), 1));
        let is_unknown = status == 503;
        assert_eq!(world.record.asked().len(), if is_unknown { 2 } else { 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_run_says_nothing_about_the_former_holders() {
    let world = World::new();
    world.stale("k").await;
    // Nobody knows of the operation, and the call that is to carry it out does not leave this process: the dead holder's may yet land.
    world.inner.will(not_run());
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!((world.state("k"), world.inner.executions()), (Some(StateName::InDoubt), 1));
    // It has landed.
    world.record.will(settled(201, r#"{"made":7}"#, Label::Final));
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay(), world.inner.executions()), (201, true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_first_call_that_was_not_run_frees_the_key() {
    let world = World::new();
    world.inner.will(not_run());
    let answer = world.post("k").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"nothing_happened".into()));
    assert_eq!((world.state("k"), world.record.asked().len()), (Some(StateName::Released), 0));
    assert_eq!(world.post("k").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_doubt_is_recovered_at_once_without_waiting_for_a_lease() {
    let world = World::new();
    world.inner.will(Act::Fail);
    let start = Instant::now();
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    world.record.will(settled(201, "{}", Label::Final));
    assert!(world.post("k").await.is_replay());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_of_many_recovers_and_the_others_are_in_progress() {
    let world = World::new();
    world.stale("k").await;
    let gate = Gate::closed();
    world.record.will(Say::Gated(gate.clone(), Box::new(settled(201, "{}", Label::Final))));
    let requests: Vec<_> = (0..20).map(|_| world.start(post("k"))).collect();
    gate.arrived().await;
    crate::world::settle().await;
    gate.open();
    let mut answers = Vec::new();
    for request in requests {
        answers.push(request.await.unwrap());
    }
    let (recovered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert_eq!((recovered.len(), refused.len()), (1, 19));
    assert!(recovered[0].is_replay());
    refused.iter().for_each(|answer| answer.assert_problem(409, "conflict/request_in_progress"));
    assert_eq!((world.record.asked().len(), world.token("k"), world.inner.executions()), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn look_up_and_execution_share_one_deadline() {
    let world = World::new();
    world.stale("k").await;
    let look_up = UPSTREAM - Duration::from_secs(5);
    world.record.will(Say::Slow(look_up, Box::new(Say::Found(Found::Unknown))));
    world.inner.will(Act::Hang);
    let start = Instant::now();
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!(start.elapsed(), UPSTREAM);
    let seen = &world.inner.seen()[0];
    assert_eq!((seen.at, seen.permit.unwrap().deadline), (start + look_up, start + UPSTREAM));
}

#[tokio::test(start_paused = true)]
async fn when_the_look_up_used_up_the_time_nothing_executes() {
    let world = World::new();
    world.stale("k").await;
    world.record.will(Say::Slow(UPSTREAM, Box::new(Say::Found(Found::Unknown))));
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!((world.state("k"), world.inner.executions()), (Some(StateName::InDoubt), 0));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_cannot_be_raised_is_503_within_two_seconds_and_nothing_executes() {
    for fault in [Fault::Refused, Fault::Hangs] {
        let world = World::new();
        world.stale("k").await;
        world.store.fault(Rpc::Reserve, Fault::Slow(Duration::from_secs(1)), 1);
        world.store.fault(Rpc::Reclaim, fault, 1);
        let start = Instant::now();
        world.post("k").await.assert_problem(503, "idempotency_unavailable");
        assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
        assert_eq!((world.record.asked().len(), world.inner.executions()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_completed_between_reserve_and_reclaim_is_replayed() {
    let world = World::new();
    let dead = world.stale("k").await;
    world.store.fault(Rpc::Reserve, Fault::Slow(Duration::from_millis(500)), 1);
    let request = world.start(post("k"));
    crate::world::settle().await;
    // The dead was only slow.
    world.completed_by("k", dead, "late");
    let answer = request.await.unwrap();
    assert_eq!((answer.status, answer.is_replay(), &answer.body[..]), (200, true, &b"late"[..]));
    assert_eq!((world.record.asked().len(), world.inner.executions()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn another_body_under_a_stale_key_is_422_and_fences_nobody() {
    let world = World::new();
    world.stale("k").await;
    world.send(post("k").body("[]")).await.assert_problem(422, "idempotency_key_reuse");
    assert_eq!((world.store.count(Rpc::Reclaim), world.token("k")), (0, FencingToken::FIRST.0));
}

#[tokio::test(start_paused = true)]
async fn a_recovered_answer_that_cannot_be_stored_is_given_all_the_same() {
    let world = World::new();
    world.stale("k").await;
    world.store.fault(Rpc::Complete, Fault::Hangs, 3);
    world.record.will(settled(201, "{}", Label::Final));
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay(), answer.header("idempotency-key-expires")), (201, true, None));
    world.store.reaches(&crate::world::key_id("k"), StateName::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_crashes_over_and_over_still_ends_in_one_answer() {
    let world = World::new();
    for _ in 0..3 {
        world.stale_again("k").await;
        world.record.will(Say::Unreachable);
        world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    }
    world.inner.will(created());
    assert_eq!(world.post("k").await.status, 201);
    assert_eq!(world.inner.executions(), 1);
}

impl World {
    /// Stale, whether or not it was before.
    async fn stale_again(&self, key: &str) {
        if self.state(key).is_none() {
            self.stale(key).await;
        } else {
            self.taken_over(key).await;
            tokio::time::advance(crate::world::LEASE).await;
        }
    }
}
