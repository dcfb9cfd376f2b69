//! A grant, and what the label of its answer makes of the key.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use idem_core::{FencingToken, StateName};
use idem_layer::{
    RoutePolicy,
    ports::{Found, Label, Outcome},
};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

use crate::{
    memory::{Fault, Rpc},
    scripted::{Act, Gate, Say, created, labelled, outcome, pending, settled, sold_out, unknown, unlabelled},
    spans,
    world::{Answer, LEASE, UPSTREAM, World, key_id, post, settle},
};

#[tokio::test(start_paused = true)]
async fn a_final_answer_is_completed_before_it_leaves() {
    let world = World::new();
    world.store.fault(Rpc::Complete, Fault::Slow(Duration::from_secs(1)), 1);
    let start = Instant::now();
    let answer = world.post("k").await;
    assert_eq!(world.state("k"), Some(StateName::Completed));
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!((answer.status, &answer.body[..]), (201, &br#"{"made":1}"#[..]));
    assert_eq!(answer.header("idempotency-key"), Some("k"));
    assert_eq!(answer.header("idempotent-replayed"), None);
    let expires = world.store.wall(start) + Duration::from_secs(24 * 3600);
    assert_eq!(answer.header("idempotency-key-expires"), Some(&*httpdate::fmt_http_date(expires)));
    // The first answer is the inner service's own, cookies included.
    assert_eq!(answer.header("set-cookie"), Some("session=1"));
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_gets_operation_token_and_a_deadline_inside_the_lease() {
    let world = World::new();
    let start = Instant::now();
    world.post("k").await;
    let permit = world.inner.seen()[0].permit.unwrap();
    assert_eq!((permit.operation_id, permit.token), (world.operation_id("k"), FencingToken::FIRST));
    assert_eq!(permit.deadline, start + UPSTREAM);
}

#[tokio::test(start_paused = true)]
async fn a_402_that_is_final_is_remembered_like_any_other_final_answer() {
    let world = World::new();
    world.inner.will(Act::Answer(labelled(402, r#"{"error":"payment_declined"}"#, Label::Final)));
    let (first, second) = (world.post("k").await, world.post("k").await);
    assert_eq!((first.status, first.is_replay()), (402, false));
    assert_eq!((second.status, second.is_replay(), second.body), (402, true, first.body));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_effect_is_released_and_the_key_executes_again() {
    let world = World::new();
    world.inner.will(sold_out()).will(sold_out());
    for nth in 1..=2 {
        let answer = world.post("k").await;
        assert_eq!((answer.status, &answer.body[..]), (409, &br#"{"error":"sold_out"}"#[..]));
        assert_eq!((answer.is_replay(), answer.header("idempotency-key-expires")), (false, None));
        assert_eq!((world.state("k"), world.token("k")), (Some(StateName::Released), nth));
    }
    assert_eq!(world.post("k").await.status, 201);
    let seen = world.inner.seen();
    let permits: Vec<_> = seen.iter().map(|seen| seen.permit.unwrap()).collect();
    assert!(permits.iter().all(|permit| permit.operation_id == permits[0].operation_id));
    assert_eq!(permits.iter().map(|permit| permit.token.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_202_abandons_the_key_at_once_and_is_answered() {
    let world = World::new();
    world.inner.will(pending());
    let answer = world.post("k").await;
    assert_eq!((answer.status, &answer.body[..]), (202, &br#"{"status":"pending"}"#[..]));
    assert_eq!((answer.is_replay(), answer.header("idempotency-key-expires")), (false, None));
    assert_eq!(world.state("k"), Some(StateName::InDoubt));
    assert!(world.record.asked().is_empty());
    // A repeat asks what became of it.
    world.record.will(Say::Found(Found::Pending)).will(settled(201, r#"{"made":2}"#, Label::Final));
    world.post("k").await.assert_problem(409, "conflict/outcome_pending");
    let decided = world.post("k").await;
    assert_eq!((decided.status, decided.is_replay()), (201, true));
    assert_eq!(world.inner.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_an_earlier_execution_downstream_is_marked_as_a_replay() {
    let world = World::new();
    let mut response = unlabelled(201, "{}");
    response.extensions_mut().insert(Outcome { is_replayed: true, ..outcome(Label::Final) });
    world.inner.will(Act::Answer(response));
    let answer = world.post("k").await;
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert!(answer.header("idempotency-key-expires").is_some());
}

/// Everything that leaves the outcome of an own execution unknown.
fn unknowns() -> Vec<Act> {
    let unlabelled_error = Act::Answer(unlabelled(422, "{}"));
    vec![unknown(), Act::Answer(unlabelled(201, "{}")), unlabelled_error, Act::Fail, Act::Panic]
}

async fn after_unknown(act: Act, say: Say) -> (World, Answer) {
    let world = World::new();
    world.inner.will(act);
    world.record.will(say);
    let answer = world.post("k").await;
    assert_eq!(world.record.asked(), [(world.operation_id("k"), FencingToken::FIRST)]);
    assert_eq!(world.store.count(Rpc::Release), 0);
    (world, answer)
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_a_settled_answer_is_completed_and_is_no_replay() {
    for act in unknowns() {
        let (world, answer) = after_unknown(act, settled(201, r#"{"made":3}"#, Label::Final)).await;
        assert_eq!((answer.status, &answer.body[..]), (201, &br#"{"made":3}"#[..]));
        assert!(!answer.is_replay() && answer.header("idempotency-key-expires").is_some());
        assert_eq!(world.state("k"), Some(StateName::Completed));
        assert!(world.post("k").await.is_replay());
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_a_pending_one_is_abandoned_and_told() {
    for act in unknowns() {
        let (world, answer) = after_unknown(act, Say::Found(Found::Pending)).await;
        answer.assert_problem(409, "conflict/outcome_pending");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert_eq!(world.state("k"), Some(StateName::InDoubt));
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_own_mutation_the_key_is_never_released() {
    for act in unknowns() {
        // No effect is what is known now; the own call may still be on its way.
        let (world, answer) = after_unknown(act, settled(409, r#"{"error":"sold_out"}"#, Label::NoEffect)).await;
        answer.assert_problem(503, "upstream_unavailable/in_doubt");
        assert_eq!(world.state("k"), Some(StateName::InDoubt));
    }
    for say in [Say::Found(Found::Unknown), Say::Unreachable, Say::Panic, Say::Hang] {
        let (world, answer) = after_unknown(unknown(), say).await;
        answer.assert_problem(503, "upstream_unavailable/in_doubt");
        assert!(answer.header("retry-after").is_some());
        assert_eq!(world.state("k"), Some(StateName::InDoubt));
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_a_fence_means_that_somebody_else_is_at_it() {
    let (_, answer) = after_unknown(unknown(), Say::Fenced).await;
    answer.assert_problem(409, "conflict/request_in_progress");
}

#[tokio::test(start_paused = true)]
async fn an_execution_past_its_deadline_is_cut_and_in_doubt() {
    let world = World::new();
    world.inner.will(Act::Hang);
    let start = Instant::now();
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!(start.elapsed(), UPSTREAM);
    // Nothing is left of the time in which to ask.
    assert!(world.record.asked().is_empty());
    assert_eq!(world.state("k"), Some(StateName::InDoubt));
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_the_retry_learns_what_happened_whichever_way_it_went() {
    for (say, is_replay, executions) in
        [(settled(201, r#"{"made":1}"#, Label::Final), true, 1), (Say::Found(Found::Unknown), false, 2)]
    {
        let world = World::new();
        world.inner.will(Act::Hang);
        world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
        tokio::time::advance(LEASE + Duration::from_secs(1)).await;
        world.record.will(say);
        let answer = world.post("k").await;
        assert_eq!((answer.status, answer.is_replay(), world.inner.executions()), (201, is_replay, executions));
        assert_eq!(world.state("k"), Some(StateName::Completed));
        assert_eq!(world.post("k").await.body, answer.body);
    }
}

/// The key is finished under the grant that came with it, not under anything that is computed again from the request.
#[tokio::test(start_paused = true)]
async fn a_handler_that_changes_its_request_finishes_the_key_it_came_with() {
    let world = World::new();
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let handler = tower::service_fn(move |mut request: Request<Full<Bytes>>| {
        counted.fetch_add(1, Ordering::SeqCst);
        *request.uri_mut() = "/elsewhere?x=1".parse().unwrap();
        *request.method_mut() = Method::PUT;
        *request.body_mut() = Full::new(Bytes::from_static(b"[]"));
        request.headers_mut().clear();
        request.extensions_mut().clear();
        async { Ok::<_, Infallible>(labelled(201, "{}", Label::Final)) }
    });
    let service = world.layer.layer(RoutePolicy::required("POST /things")).layer(handler);
    for is_replay in [false, true, true] {
        let answer = service.clone().oneshot(post("k").request()).await.unwrap();
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), is_replay);
    }
    assert_eq!(executions.load(Ordering::SeqCst), 1);
    assert_eq!(world.store.states(), [(key_id("k"), StateName::Completed)]);
}

#[tokio::test(start_paused = true)]
async fn execution_and_the_question_after_it_share_one_deadline() {
    let world = World::new();
    world.inner.will(Act::Slow(UPSTREAM - Duration::from_secs(5), Box::new(unknown())));
    world.record.will(Say::Hang);
    let start = Instant::now();
    world.post("k").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!(start.elapsed(), UPSTREAM);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reservation_leaves_less_time_than_its_lease() {
    let world = World::new();
    let slow = Duration::from_millis(1500);
    world.store.fault(Rpc::Reserve, Fault::Slow(slow), 1);
    let start = Instant::now();
    world.post("k").await;
    let permit = world.inner.seen()[0].permit.unwrap();
    assert_eq!(permit.deadline, start + slow + UPSTREAM);
    assert!(permit.deadline < start + LEASE);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_inner_service_does_not_hurt_the_next_request() {
    let world = World::new();
    world.inner.will(Act::Panic).will(created());
    world.post("a").await.assert_problem(503, "upstream_unavailable/in_doubt");
    assert_eq!(world.post("b").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_changes_nothing() {
    let world = World::new();
    let gate = Gate::closed();
    world.inner.will(Act::Gated(gate.clone(), Box::new(created())));
    let client = world.start(post("k"));
    gate.arrived().await;
    client.abort();
    assert!(client.await.is_err());
    gate.open();
    world.store.reaches(&key_id("k"), StateName::Completed).await;
    assert!(world.post("k").await.is_replay());
    assert_eq!(world.inner.executions(), 1);
}

/// A connection that breaks leaves no trace of its own answer; the operation does.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_a_span_with_what_became_of_its_operation() {
    spans::listen();
    for (act, outcome) in [(created(), "executed"), (sold_out(), "released"), (unknown(), "in_doubt")] {
        let world = World::new();
        let gate = Gate::closed();
        world.inner.will(Act::Gated(gate.clone(), Box::new(act)));
        let client = world.start(post("k"));
        gate.arrived().await;
        client.abort();
        assert!(client.await.is_err());
        gate.open();
        settle().await;
        let ended = spans::ended("run operation", "idem.operation_id", &world.operation_id("k").to_string());
        let [span] = ended.as_slice() else { panic!("one operation, one span: {ended:?}") };
        assert_eq!(span.get("idem.outcome").map(String::as_str), Some(outcome));
    }
}
