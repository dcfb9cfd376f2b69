//! Calls that travel together: when they do, what each caller hears, and what becomes of the others when one goes wrong.

use std::{any::Any, time::Duration};

use futures::future::{BoxFuture, FutureExt, join_all, poll_immediate};
use idem_client::{ClientError, Finished, IdemClient, Intent, KeyId, Reserved};
use idem_core::{FencingToken, IdempotencyKey, OperationId, Response};
use idem_proto::idem::v1::{self as proto, complete_response, reserve_response::Outcome};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, yield_now},
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::server::{Fake, OPERATION, Reply, after, at, granted, intent, key, reserve, spawn, unavailable, wall};

type Pending<'c> = BoxFuture<'c, Result<Reserved, ClientError>>;

/// Both flights are out, each with a Reserve that is answered when its door opens.
struct Busy {
    doors: Vec<oneshot::Sender<()>>,
    callers: Vec<JoinHandle<Result<Reserved, ClientError>>>,
}

impl Busy {
    async fn keep(fake: &Fake, client: &IdemClient) -> Self {
        let (mut doors, mut callers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (door, opened) = oneshot::channel();
            let before = fake.calls().len();
            fake.will_not(Reply::Held(opened, Box::new(grant(1))));
            let client = client.clone();
            callers.push(spawn(async move { client.reserve(&intent(), after(10_000)).await }));
            doors.push(door);
            until_calls(fake, before + 1).await;
        }
        Self { doors, callers }
    }

    /// Lets the callers through that kept the others waiting.
    async fn open(self) {
        self.doors.into_iter().for_each(|door| door.send(()).unwrap());
        for caller in self.callers {
            assert_eq!(token(&caller.await.unwrap()), Some(1));
        }
    }
}

async fn until_calls(fake: &Fake, calls: usize) {
    while fake.calls().len() < calls {
        yield_now().await;
    }
}

fn grant(token: i64) -> proto::ReserveResponse {
    reserve(Outcome::Granted(granted(token, false)))
}

fn token(heard: &Result<Reserved, ClientError>) -> Option<i64> {
    match heard {
        Ok(Reserved::Granted(granted)) => Some(granted.grant.token.0),
        _ => None,
    }
}

/// An intent on a key of its own, which its number names.
fn numbered(number: i64) -> Intent {
    let key = KeyId { key: IdempotencyKey::new(number.to_string()).unwrap(), ..key() };
    Intent { key, ..intent() }
}

/// Asks for keys of these numbers, without waiting for the answers.
async fn ask(client: &IdemClient, numbers: impl IntoIterator<Item = i64>, within: u64) -> Vec<Pending<'_>> {
    let mut pending: Vec<Pending<'_>> = Vec::new();
    for number in numbers {
        pending.push(async move { client.reserve(&numbered(number), after(within)).await }.boxed());
        assert!(poll_immediate(pending.last_mut().unwrap()).await.is_none(), "the flights are out");
    }
    pending
}

fn many(tokens: impl IntoIterator<Item = i64>) -> proto::ReserveManyResponse {
    proto::ReserveManyResponse { outcomes: tokens.into_iter().map(grant).collect() }
}

/// Grants each key the token that is its number, and refuses key 13.
fn judge(fake: &Fake, calls: usize) {
    let judge = |message: &dyn Any| -> Result<Box<dyn Any + Send>, Status> {
        let message = message.downcast_ref::<proto::ReserveRequest>().expect("a Reserve alone");
        match message.key.parse().unwrap() {
            13 => Err(Status::invalid_argument("thirteen")),
            number => Ok(Box::new(grant(number))),
        }
    };
    for _ in 0..calls {
        fake.will_not(Reply::Judged(Box::new(judge)));
    }
}

fn rpcs(fake: &Fake) -> Vec<&'static str> {
    fake.calls().iter().map(|call| call.rpc).collect()
}

fn keys(items: &[proto::ReserveRequest]) -> Vec<i64> {
    items.iter().map(|item| item.key.parse().unwrap()).collect()
}

#[tokio::test]
async fn calls_that_follow_each_other_go_alone() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    for number in 1..5 {
        fake.will(grant(number));
        assert_eq!(token(&client.reserve(&numbered(number), after(5000)).await), Some(number));
    }
    assert_eq!(rpcs(&fake), ["Reserve"; 4]);
}

#[tokio::test]
async fn what_arrives_while_others_are_under_way_goes_as_one_message_and_each_hears_its_own() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let busy = Busy::keep(&fake, &client).await;
    let waiting = ask(&client, 10..20, 10_000).await;
    fake.will(many(10..20));
    busy.open().await;
    let heard: Vec<_> = join_all(waiting).await.iter().map(token).collect();
    assert_eq!(heard, (10..20).map(Some).collect::<Vec<_>>());
    assert_eq!(rpcs(&fake), ["Reserve", "Reserve", "ReserveMany"]);
    let sent: proto::ReserveManyRequest = fake.message(2);
    assert_eq!(keys(&sent.items), (10..20).collect::<Vec<_>>());
    assert_eq!(fake.calls()[2].metadata.get("grpc-timeout").unwrap(), "900000u");
}

#[tokio::test]
async fn completes_travel_together_under_the_traces_of_their_callers() {
    let fake = Fake::default();
    let running = fake.serve().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let hook = move |headers: &mut http::HeaderMap| drop(headers.insert("traceparent", trace.parse().unwrap()));
    let client = IdemClient::builder(running.endpoint()).trace_with(hook).connect_lazy().unwrap();
    let completed = |second| proto::CompleteResponse {
        outcome: Some(complete_response::Outcome::Completed(proto::Completed { expires_at: at(second) })),
    };
    let complete = |token: i64| {
        let client = client.clone();
        spawn(async move {
            let held = (OperationId(OPERATION.parse().unwrap()), FencingToken(token));
            let response = Response::new(200, vec![], "x".into(), String::new()).unwrap();
            client.complete(&key(), held, &response, after(10_000)).await.unwrap()
        })
    };
    let (mut doors, mut callers) = (Vec::new(), Vec::new());
    for under_way in 1..3 {
        let (door, opened) = oneshot::channel();
        fake.will_not(Reply::Held(opened, Box::new(completed(under_way))));
        callers.push(complete(under_way));
        doors.push(door);
        until_calls(&fake, under_way as usize).await;
    }
    callers.extend((3..6).map(complete));
    // On this one thread, whoever was spawned has asked by now.
    for _ in 0..20 {
        yield_now().await;
    }
    fake.will(proto::CompleteManyResponse { outcomes: (3..6).map(completed).collect() });
    doors.into_iter().for_each(|door| door.send(()).unwrap());
    for (caller, second) in callers.into_iter().zip(1..) {
        assert_eq!(caller.await.unwrap(), Finished::Done(Some(wall(second))));
    }
    assert_eq!(rpcs(&fake), ["Complete", "Complete", "CompleteMany"]);
    // One that goes alone has its metadata for that.
    let alone: proto::CompleteRequest = fake.message(0);
    assert_eq!(alone.trace_context, "");
    assert_eq!(fake.calls()[0].metadata.get("traceparent").unwrap(), trace);
    let sent: proto::CompleteManyRequest = fake.message(2);
    let items: Vec<_> = sent.items.iter().map(|item| (item.fencing_token, item.trace_context.as_str())).collect();
    assert_eq!(items, [(3, trace), (4, trace), (5, trace)]);
}

#[tokio::test]
async fn a_reserve_that_waits_for_a_holder_keeps_nobody_waiting() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let busy = Busy::keep(&fake, &client).await;
    fake.will(grant(7));
    let waiting = Intent { wait: Duration::from_secs(1), ..numbered(7) };
    assert_eq!(token(&client.reserve(&waiting, after(10_000)).await), Some(7));
    assert_eq!(rpcs(&fake), ["Reserve"; 3]);
    busy.open().await;
}

#[tokio::test]
async fn a_caller_that_has_gone_or_whose_deadline_has_come_is_left_out() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let busy = Busy::keep(&fake, &client).await;
    let staying = ask(&client, [10, 11], 10_000).await;
    drop(ask(&client, [12], 10_000).await);
    let late = ask(&client, [13], 20).await;
    let heard = join_all(late).await;
    assert!(matches!(heard[..], [Err(ClientError::Unreachable(_))]), "{heard:?}");
    fake.will(many([10, 11]));
    busy.open().await;
    assert_eq!(join_all(staying).await.iter().map(token).collect::<Vec<_>>(), [Some(10), Some(11)]);
    assert_eq!(keys(&fake.message::<proto::ReserveManyRequest>(2).items), [10, 11]);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_who_cannot_wait_for_that_leaves_alone() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let busy = Busy::keep(&fake, &client).await;
    let (mut hasty, mut patient) = (ask(&client, [10], 300).await, ask(&client, [11, 12], 10_000).await);
    fake.will_not(Reply::Hang).will(many([10, 11, 12]));
    busy.open().await;
    let (hasty, patient) = (hasty.pop().unwrap(), join_all(patient.drain(..)));
    let (hasty, patient) = tokio::join!(hasty, patient);
    assert!(matches!(hasty, Err(ClientError::Unreachable(_))), "{hasty:?}");
    assert_eq!(patient.iter().map(token).collect::<Vec<_>>(), [Some(11), Some(12)]);
    // The same attempts.
    let (first, second): (proto::ReserveManyRequest, proto::ReserveManyRequest) = (fake.message(2), fake.message(3));
    assert_eq!((keys(&first.items), &first), (vec![10, 11, 12], &second));
}

#[tokio::test]
async fn an_outage_is_told_to_everybody_with_its_cause() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let busy = Busy::keep(&fake, &client).await;
    let waiting = ask(&client, 10..13, 400).await;
    for _ in 0..50 {
        fake.will_not(unavailable());
    }
    busy.open().await;
    for heard in join_all(waiting).await {
        let Err(ClientError::Unreachable(cause)) = heard else { panic!("{heard:?}") };
        // Told, or given up at the deadline, which comes at the same moment.
        let cause = cause.to_string();
        assert!(cause.contains("the store is away") || cause.contains("deadline"), "{cause}");
    }
    assert!(rpcs(&fake)[2..].iter().all(|rpc| *rpc == "ReserveMany"), "{:?}", rpcs(&fake));
}

#[tokio::test]
async fn a_refusal_stays_with_the_call_that_it_is_about() {
    let codes =
        [Code::InvalidArgument, Code::PermissionDenied, Code::ResourceExhausted, Code::OutOfRange, Code::Internal];
    for code in codes {
        let fake = Fake::default();
        let client = fake.serve().await.client();
        let busy = Busy::keep(&fake, &client).await;
        let waiting = ask(&client, [12, 13, 14], 10_000).await;
        fake.will_not(Reply::Refuse(Status::new(code, "one of them")));
        judge(&fake, 3);
        busy.open().await;
        let heard = join_all(waiting).await;
        assert_eq!(heard.iter().map(token).collect::<Vec<_>>(), [Some(12), None, Some(14)], "{code:?}");
        let Err(ClientError::Refused { message, .. }) = &heard[1] else { panic!("{code:?}: {:?}", heard[1]) };
        assert_eq!(message, "thirteen", "{code:?}");
        // The next ones travel together again.
        let busy = Busy::keep(&fake, &client).await;
        let waiting = ask(&client, [15, 16], 10_000).await;
        fake.will(many([15, 16]));
        busy.open().await;
        assert_eq!(join_all(waiting).await.iter().map(token).collect::<Vec<_>>(), [Some(15), Some(16)]);
        assert_eq!(rpcs(&fake)[2..6], ["ReserveMany", "Reserve", "Reserve", "Reserve"]);
        assert_eq!(rpcs(&fake).last(), Some(&"ReserveMany"));
    }
}

#[tokio::test]
async fn a_service_that_does_not_know_or_grant_the_rpc_is_asked_one_by_one_from_then_on() {
    let details = ErrorDetails::with_error_info("RPC_NOT_GRANTED", "idem", []);
    let not_granted = Status::with_error_details(Code::PermissionDenied, "not this rpc", details);
    for refusal in [Status::unimplemented("what?"), not_granted] {
        let fake = Fake::default();
        let client = fake.serve().await.client();
        let busy = Busy::keep(&fake, &client).await;
        let waiting = ask(&client, [14, 15], 10_000).await;
        fake.will_not(Reply::Refuse(refusal));
        judge(&fake, 2);
        busy.open().await;
        assert_eq!(join_all(waiting).await.iter().map(token).collect::<Vec<_>>(), [Some(14), Some(15)]);
        judge(&fake, 20);
        let at_once = join_all((20..40).map(|number| {
            let client = client.clone();
            async move { client.reserve(&numbered(number), after(10_000)).await }
        }));
        assert_eq!(at_once.await.iter().map(token).collect::<Vec<_>>(), (20..40).map(Some).collect::<Vec<_>>());
        assert_eq!(rpcs(&fake)[2], "ReserveMany");
        assert!(rpcs(&fake)[3..].iter().all(|rpc| *rpc == "Reserve"), "{:?}", rpcs(&fake));
    }
}

#[tokio::test]
async fn outcomes_that_are_not_one_for_each_item_are_nobodys() {
    for outcomes in [many([10, 11]), many(10..14), many([])] {
        let fake = Fake::default();
        let client = fake.serve().await.client();
        let busy = Busy::keep(&fake, &client).await;
        let waiting = ask(&client, [10, 11, 12], 10_000).await;
        fake.will(outcomes);
        busy.open().await;
        for heard in join_all(waiting).await {
            assert!(matches!(heard, Err(ClientError::Malformed(_))), "{heard:?}");
        }
        assert_eq!(rpcs(&fake), ["Reserve", "Reserve", "ReserveMany"]);
    }
}

#[tokio::test]
async fn folding_can_be_turned_off() {
    let fake = Fake::default();
    let running = fake.serve().await;
    let client = IdemClient::builder(running.endpoint()).fold(false).connect_lazy().unwrap();
    judge(&fake, 20);
    let asked = (20..40).map(|number| {
        let client = client.clone();
        async move { client.reserve(&numbered(number), after(10_000)).await }
    });
    assert_eq!(join_all(asked).await.iter().map(token).collect::<Vec<_>>(), (20..40).map(Some).collect::<Vec<_>>());
    assert_eq!(rpcs(&fake), ["Reserve"; 20]);
}
