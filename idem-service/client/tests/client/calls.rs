//! What is sent, and how every answer is read.

use std::time::Duration;

use idem_client::{
    Begun, ClientError, Finished, IdemClient, Reclaimed, Renewed, Replay, Reserved, ServiceToken, Stale, Superseded,
};
use idem_core::{
    AttemptId, FencingToken, LeaseDuration, OperationId, Response, RetentionPeriod, StaleReason, StateName,
    TraceContext,
};
use idem_proto::idem::v1::{self as proto, ErrorReason, State, reclaim_response, reserve_response::Outcome};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::server::{
    Fake, OPERATION, Reply, after, at, granted, intent, key, replay, reserve, spawn, unavailable, wall,
};

fn operation_id() -> OperationId {
    OperationId(OPERATION.parse().unwrap())
}

fn held() -> (OperationId, FencingToken) {
    (operation_id(), FencingToken(4))
}

fn lease() -> LeaseDuration {
    LeaseDuration::new(Duration::from_millis(1500)).unwrap()
}

fn read_replay() -> Replay {
    let headers = vec![("location".to_owned(), "/things/1".to_owned())];
    Replay {
        response: Response::new(201, headers, "body".into(), "thing-1".to_owned()).unwrap(),
        completed_at: wall(1000),
        expires_at: wall(2000),
        expires_in: Duration::from_secs(1000),
        trace_context: TraceContext::new("00-trace-01").unwrap(),
    }
}

#[tokio::test]
async fn reserve_sends_the_intent_with_timeout_token_and_trace() {
    let fake = Fake::default();
    let running = fake.serve().await;
    let client = IdemClient::builder(running.endpoint())
        .token(ServiceToken::new("secret-1").unwrap())
        .trace_with(|headers| drop(headers.insert("traceparent", "00-me-01".parse().unwrap())))
        .connect_lazy()
        .unwrap();
    let mut intent = intent();
    intent.lease = lease();
    intent.retention = RetentionPeriod::new(Duration::from_secs(90), intent.lease).unwrap();
    intent.wait = Duration::from_secs(2);
    intent.trace_context = TraceContext::new("00-me-01").unwrap();
    fake.will(reserve(Outcome::Granted(granted(4, false))));
    let Reserved::Granted(got) = client.reserve(&intent, after(5000)).await.unwrap() else { panic!("not granted") };
    assert_eq!((got.grant.operation_id, got.grant.token), held());
    assert_eq!((got.grant.attempts, got.grant.must_ask, got.lease_expires_at), (3, false, wall(1000)));

    let sent: proto::ReserveRequest = fake.message(0);
    let expected = proto::ReserveRequest {
        scope: "rest/a".to_owned(),
        key: "k 1".to_owned(),
        fingerprint: vec![7; 32].into(),
        attempt_id: intent.attempt_id.to_string(),
        lease: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
        retention: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
        wait: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        trace_context: "00-me-01".to_owned(),
    };
    assert_eq!(sent, expected);
    let metadata = &fake.calls()[0].metadata;
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer secret-1");
    assert_eq!(metadata.get("traceparent").unwrap(), "00-me-01");
    // A try may take as long as the wait, and a little more.
    assert_eq!(metadata.get("grpc-timeout").unwrap(), "2900000u");
}

#[tokio::test]
async fn every_answer_to_reserve_is_read() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let retry_after = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    let stale = |reason: proto::StaleReason| {
        Outcome::Stale(proto::Stale {
            operation_id: OPERATION.to_owned(),
            fencing_token: 4,
            reason: reason.into(),
            trace_context: "00-dead-01".to_owned(),
        })
    };
    let read_stale = |reason| {
        Reserved::Stale(Stale {
            operation_id: operation_id(),
            token: FencingToken(4),
            reason,
            trace_context: TraceContext::new("00-dead-01").unwrap(),
        })
    };
    let table = [
        (Outcome::Replay(replay()), Reserved::Replay(read_replay())),
        (
            Outcome::InProgress(proto::InProgress { retry_after, lease_expires_at: at(1) }),
            Reserved::InProgress { retry_after: Duration::from_secs(3) },
        ),
        (
            Outcome::InProgress(proto::InProgress::default()),
            Reserved::InProgress { retry_after: Duration::from_secs(1) },
        ),
        (Outcome::Mismatch(proto::Mismatch {}), Reserved::Mismatch),
        (stale(proto::StaleReason::LeaseExpired), read_stale(StaleReason::LeaseExpired)),
        (stale(proto::StaleReason::InDoubt), read_stale(StaleReason::InDoubt)),
        (stale(proto::StaleReason::AttemptEnded), read_stale(StaleReason::AttemptEnded)),
    ];
    for (answer, expected) in table {
        fake.will(reserve(answer));
        assert_eq!(client.reserve(&intent(), after(2000)).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn answers_that_make_no_sense_are_malformed_and_not_asked_for_again() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let mut bad_body = replay();
    bad_body.response.as_mut().unwrap().status = 99;
    let table = [
        proto::ReserveResponse { outcome: None },
        reserve(Outcome::Granted(proto::Granted { operation_id: "no uuid".to_owned(), ..granted(4, false) })),
        reserve(Outcome::Granted(proto::Granted { lease_expires_at: None, ..granted(4, false) })),
        reserve(Outcome::Replay(proto::Replay { response: None, ..replay() })),
        reserve(Outcome::Replay(bad_body)),
    ];
    for (nth, answer) in table.into_iter().enumerate() {
        fake.will(answer);
        let error = client.reserve(&intent(), after(2000)).await.unwrap_err();
        assert!(matches!(error, ClientError::Malformed(_)), "{error}");
        assert_eq!(fake.calls().len(), nth + 1);
    }
}

#[tokio::test]
async fn reclaim_sends_what_was_seen_and_reads_every_answer() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let attempt_id = AttemptId(uuid::Uuid::new_v4());
    let reclaim = async || client.reclaim(&key(), held(), attempt_id, lease(), after(2000)).await.unwrap();
    let answer = |outcome| proto::ReclaimResponse { outcome: Some(outcome) };

    fake.will(answer(reclaim_response::Outcome::Granted(granted(5, true))));
    let Reclaimed::Granted(got) = reclaim().await else { panic!("not granted") };
    assert_eq!((got.grant.token, got.grant.must_ask), (FencingToken(5), true));
    let sent: proto::ReclaimRequest = fake.message(0);
    assert_eq!((sent.scope, sent.key, sent.operation_id), ("rest/a".into(), "k 1".into(), OPERATION.into()));
    assert_eq!((sent.fencing_token, sent.attempt_id), (4, attempt_id.to_string()));
    assert_eq!(sent.lease, Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }));

    fake.will(answer(reclaim_response::Outcome::Replay(replay())));
    assert_eq!(reclaim().await, Reclaimed::Replay(read_replay()));
    fake.will(answer(reclaim_response::Outcome::InProgress(proto::InProgress::default())));
    assert_eq!(reclaim().await, Reclaimed::InProgress { retry_after: Duration::from_secs(1) });
    fake.will_not(Reply::Refuse(Status::not_found("no record")));
    assert_eq!(reclaim().await, Reclaimed::Absent);
}

#[tokio::test]
async fn a_holder_finishes_or_learns_that_it_was_superseded() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let superseded = |replay: Option<proto::Replay>, state: State| proto::Superseded { state: state.into(), replay };
    let response = Response::new(200, vec![("a".into(), "b".into())], "x".into(), "id".into()).unwrap();

    let complete = |outcome| proto::CompleteResponse { outcome: Some(outcome) };
    fake.will(complete(proto::complete_response::Outcome::Completed(proto::Completed { expires_at: at(9) })));
    let done = client.complete(&key(), held(), &response, after(2000)).await.unwrap();
    assert_eq!(done, Finished::Done(Some(wall(9))));
    let sent: proto::CompleteRequest = fake.message(0);
    let stored = sent.response.unwrap();
    assert_eq!((stored.status, &stored.body[..], &*stored.resource_id), (200, &b"x"[..], "id"));
    assert_eq!((sent.fencing_token, sent.operation_id), (4, OPERATION.to_owned()));

    let by_completed = superseded(Some(replay()), State::Completed);
    fake.will(complete(proto::complete_response::Outcome::Superseded(by_completed)));
    let late = client.complete(&key(), held(), &response, after(2000)).await.unwrap();
    let by = Superseded { state: Some(StateName::Completed), replay: Some(Box::new(read_replay())) };
    assert_eq!(late, Finished::Superseded(by));

    let gone = superseded(None, State::Unspecified);
    fake.will(proto::ReleaseResponse { outcome: Some(proto::release_response::Outcome::Superseded(gone)) });
    let late = client.release(&key(), held(), after(2000)).await.unwrap();
    assert_eq!(late, Finished::Superseded(Superseded { state: None, replay: None }));

    let released = proto::release_response::Outcome::Released(proto::Released {});
    fake.will(proto::ReleaseResponse { outcome: Some(released) });
    assert_eq!(client.release(&key(), held(), after(2000)).await.unwrap(), Finished::Done(None));
    let abandoned = proto::abandon_response::Outcome::Abandoned(proto::Abandoned {});
    fake.will(proto::AbandonResponse { outcome: Some(abandoned) });
    assert_eq!(client.abandon(&key(), held(), after(2000)).await.unwrap(), Finished::Done(None));
    let renewed = proto::renew_response::Outcome::Renewed(proto::Renewed { lease_expires_at: at(7) });
    fake.will(proto::RenewResponse { outcome: Some(renewed) });
    assert_eq!(client.renew(&key(), held(), lease(), after(2000)).await.unwrap(), Renewed::Until(wall(7)));
    let rpcs: Vec<_> = fake.calls().iter().map(|call| call.rpc).collect();
    assert_eq!(rpcs, ["Complete", "Complete", "Release", "Release", "Abandon", "Renew"]);
}

#[tokio::test]
async fn get_reads_a_record_or_its_absence() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let record = proto::KeyRecord {
        scope: "rest/a".to_owned(),
        key: "k 1".to_owned(),
        state: State::Completed.into(),
        operation_id: OPERATION.to_owned(),
        fencing_token: 4,
        attempts: 2,
        created_at: at(1),
        completed_at: at(2),
        expires_at: at(3),
        status: 201,
        resource_id: "thing-1".to_owned(),
        ..Default::default()
    };
    fake.will(proto::GetResponse { record: Some(record.clone()) });
    let got = client.get(&key(), after(2000)).await.unwrap().unwrap();
    assert_eq!((got.key, got.state, got.operation_id), (key(), StateName::Completed, operation_id()));
    assert_eq!((got.token, got.attempts, got.status), (FencingToken(4), 2, Some(201)));
    assert_eq!((got.created_at, got.completed_at, got.expires_at), (wall(1), Some(wall(2)), Some(wall(3))));
    assert_eq!((got.lease_expires_at, got.is_lease_over), (None, false));

    fake.will_not(Reply::Refuse(Status::not_found("no record")));
    assert_eq!(client.get(&key(), after(2000)).await.unwrap(), None);

    let open = proto::KeyRecord { state: State::InProgress.into(), lease_over: true, status: 0, ..record };
    fake.will(proto::ListStaleResponse { records: vec![open] });
    let stale = client.list_stale("rest/*", 50, lease(), after(2000)).await.unwrap();
    assert_eq!((stale[0].state, stale[0].is_lease_over, stale[0].status), (StateName::InProgress, true, None));
    let sent: proto::ListStaleRequest = fake.message(2);
    assert_eq!((sent.scope.as_str(), sent.limit), ("rest/*", 50));
}

#[tokio::test]
async fn list_stale_is_made_once_since_its_rows_hide() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    fake.will_not(unavailable());
    let error = client.list_stale("rest/*", 50, lease(), after(2000)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn a_refusal_says_why_and_is_not_repeated() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let details = ErrorDetails::with_error_info("SCOPE_NOT_GRANTED", "idem", []);
    let status = Status::with_error_details(Code::PermissionDenied, "not your scope", details);
    fake.will_not(Reply::Refuse(status));
    match client.reserve(&intent(), after(2000)).await.unwrap_err() {
        ClientError::Refused { code, reason, message, .. } => {
            assert_eq!((code, reason), (Code::PermissionDenied, ErrorReason::ScopeNotGranted));
            assert_eq!(message, "not your scope");
        }
        other => panic!("not refused: {other}"),
    }
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn begin_fences_a_former_holder_under_a_new_attempt() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let stale = proto::Stale { operation_id: OPERATION.to_owned(), fencing_token: 4, ..Default::default() };
    fake.will(reserve(Outcome::Stale(stale)));
    let outcome = Some(reclaim_response::Outcome::Granted(granted(5, true)));
    fake.will(proto::ReclaimResponse { outcome });
    let Begun::Held(mut reservation) = client.begin(&intent(), after(2000)).await.unwrap() else { panic!("not held") };
    assert_eq!((reservation.token(), reservation.must_ask()), (FencingToken(5), true));
    let (reserved, reclaimed): (proto::ReserveRequest, proto::ReclaimRequest) = (fake.message(0), fake.message(1));
    assert_ne!(reserved.attempt_id, reclaimed.attempt_id);

    // A call that failed leaves the reservation as it is.
    fake.will_not(Reply::Refuse(Status::internal("a fault")));
    let response = Response::new(200, vec![], "x".into(), String::new()).unwrap();
    assert!(reservation.complete(response.clone(), after(2000)).await.is_err());
    let completed = proto::complete_response::Outcome::Completed(proto::Completed { expires_at: at(9) });
    fake.will(proto::CompleteResponse { outcome: Some(completed) });
    assert_eq!(reservation.complete(response, after(2000)).await.unwrap(), Finished::Done(Some(wall(9))));
    let sent: proto::CompleteRequest = fake.message(3);
    assert_eq!(sent.fencing_token, 5);
}

#[tokio::test]
async fn begin_passes_on_every_other_answer() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    fake.will(reserve(Outcome::Replay(replay())));
    assert!(matches!(client.begin(&intent(), after(2000)).await.unwrap(), Begun::Replay(it) if it == read_replay()));
    fake.will(reserve(Outcome::Mismatch(proto::Mismatch {})));
    assert!(matches!(client.begin(&intent(), after(2000)).await.unwrap(), Begun::Mismatch));
    let stale = proto::Stale { operation_id: OPERATION.to_owned(), fencing_token: 4, ..Default::default() };
    fake.will(reserve(Outcome::Stale(stale)));
    fake.will_not(Reply::Refuse(Status::not_found("gone")));
    assert!(matches!(client.begin(&intent(), after(2000)).await.unwrap(), Begun::InProgress { .. }));
}

#[tokio::test]
async fn calls_can_be_made_from_any_task() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    fake.will(reserve(Outcome::Mismatch(proto::Mismatch {})));
    let reserved = spawn(async move { client.reserve(&intent(), after(2000)).await.unwrap() }).await.unwrap();
    assert_eq!(reserved, Reserved::Mismatch);
}
