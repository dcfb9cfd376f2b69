//! An idempotency service in memory: the real decisions, and a clock that only a test moves.

use idem_core::{
    Answer, AttemptId, Command, Deadline, FencingToken, Fingerprint, LEASE_DEFAULT, OperationId, RETENTION_DEFAULT,
    Record, State, StateName, TraceContext, Verdict, decide,
};
use idem_proto::idem::v1::{
    self as proto,
    admin_service_server::{AdminService, AdminServiceServer},
    idempotency_service_server::{IdempotencyService, IdempotencyServiceServer},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

type Key = (String, String);
type Answered<T> = Result<Response<T>, Status>;

/// The service. Cheap to clone.
#[derive(Clone, Default)]
pub struct FakeIdem {
    records: Arc<Mutex<HashMap<Key, Entry>>>,
}

struct Entry {
    record: Record,
    is_hidden: bool,
}

impl FakeIdem {
    /// The state of a key of tenant `a`.
    pub fn state(&self, key: &str) -> Option<StateName> {
        self.records.lock().unwrap().get(&id("rest/a", key)).map(|entry| entry.record.state.name())
    }

    /// What is stored under a key of tenant `a`.
    pub fn stored(&self, key: &str) -> idem_core::Response {
        match &self.records.lock().unwrap()[&id("rest/a", key)].record.state {
            State::Completed(response) => response.clone(),
            other => panic!("{key} is {}", other.name().as_str()),
        }
    }

    /// The token of a key of tenant `a`.
    pub fn token(&self, key: &str) -> i64 {
        self.records.lock().unwrap()[&id("rest/a", key)].record.token.0
    }

    /// Ends the lease of a key of tenant `a`, and shows it to reconcilers again.
    pub fn expire(&self, key: &str) {
        let mut records = self.records.lock().unwrap();
        let entry = records.get_mut(&id("rest/a", key)).expect("a record");
        (entry.record.deadline, entry.is_hidden) = (Deadline::Passed, false);
    }

    /// Reserves a key of tenant `a` for somebody who never comes back.
    pub fn strand(&self, key: &str) -> OperationId {
        let operation_id = OperationId(Uuid::new_v4());
        let fingerprint = Fingerprint::of_request("POST", "/v1/orders", "", b"").unwrap();
        self.apply(id("rest/a", key), reserve(fingerprint, AttemptId(Uuid::new_v4()), operation_id, ""));
        self.expire(key);
        operation_id
    }

    /// Somebody else takes a key of tenant `a` over and completes it.
    pub fn complete_elsewhere(&self, key: &str, status: u32, body: &'static str) {
        let mut records = self.records.lock().unwrap();
        let record = &mut records.get_mut(&id("rest/a", key)).expect("a record").record;
        record.token = record.token.next();
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let response = idem_core::Response::new(status, headers, body.into(), String::new()).unwrap();
        record.state = State::Completed(response);
    }

    pub fn servers(&self) -> (IdempotencyServiceServer<Self>, AdminServiceServer<Self>) {
        (IdempotencyServiceServer::new(self.clone()), AdminServiceServer::new(self.clone()))
    }

    fn apply(&self, key: Key, command: Command) -> (Answer, Option<Record>) {
        let mut records = self.records.lock().unwrap();
        let answer = match decide(records.get(&key).map(|entry| &entry.record), command) {
            Verdict::Keep(answer) => answer,
            Verdict::Put(put, answer) => {
                let is_hidden = records.get(&key).is_some_and(|entry| entry.is_hidden);
                records.insert(key.clone(), Entry { record: put.record, is_hidden });
                answer
            }
        };
        (answer, records.get(&key).map(|entry| entry.record.clone()))
    }
}

fn id(scope: &str, key: &str) -> Key {
    (scope.to_owned(), key.to_owned())
}

fn reserve(fingerprint: Fingerprint, attempt_id: AttemptId, operation_id: OperationId, trace: &str) -> Command {
    let trace_context = TraceContext::new(trace).unwrap();
    let (lease, retention) = (LEASE_DEFAULT, RETENTION_DEFAULT);
    Command::Reserve { fingerprint, attempt_id, operation_id, lease, retention, trace_context }
}

fn uuid(text: &str) -> Uuid {
    text.parse().expect("a uuid")
}

/// Far enough ahead for every test.
fn later() -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 })
}

fn granted(grant: idem_core::Grant) -> proto::Granted {
    proto::Granted {
        operation_id: grant.operation_id.to_string(),
        fencing_token: grant.token.0,
        lease_expires_at: later(),
        attempts: grant.attempts,
        must_ask: grant.must_ask,
    }
}

fn replay(response: &idem_core::Response) -> proto::Replay {
    let header = |(name, value): &(String, String)| proto::Header { name: name.clone(), value: value.clone() };
    let response = proto::StoredResponse {
        status: response.status().into(),
        headers: response.headers().iter().map(header).collect(),
        body: response.body().clone(),
        resource_id: response.resource_id().to_owned(),
    };
    proto::Replay { response: Some(response), completed_at: later(), expires_at: later(), ..Default::default() }
}

fn superseded(record: Option<&Record>) -> proto::Superseded {
    let replay = record.and_then(|record| match &record.state {
        State::Completed(response) => Some(replay(response)),
        _ => None,
    });
    proto::Superseded { state: record.map_or(0, |record| state(record).into()), replay }
}

fn state(record: &Record) -> proto::State {
    match record.state.name() {
        StateName::InProgress => proto::State::InProgress,
        StateName::InDoubt => proto::State::InDoubt,
        StateName::Completed => proto::State::Completed,
        StateName::Released => proto::State::Released,
    }
}

fn shown((scope, key): &Key, record: &Record) -> proto::KeyRecord {
    let is_finished = matches!(record.state, State::Completed(_) | State::Released);
    proto::KeyRecord {
        scope: scope.clone(),
        key: key.clone(),
        state: state(record).into(),
        operation_id: record.operation_id.to_string(),
        fencing_token: record.token.0,
        attempts: record.attempts,
        created_at: later(),
        lease_expires_at: later().filter(|_| record.state == State::InProgress),
        expires_at: later().filter(|_| is_finished),
        status: if let State::Completed(response) = &record.state { response.status().into() } else { 0 },
        lease_over: record.is_lease_over(),
        ..Default::default()
    }
}

fn in_progress() -> proto::InProgress {
    proto::InProgress { retry_after: None, lease_expires_at: later() }
}

#[tonic::async_trait]
impl IdempotencyService for FakeIdem {
    async fn reserve(&self, request: Request<proto::ReserveRequest>) -> Answered<proto::ReserveResponse> {
        use proto::reserve_response::Outcome;
        let it = request.into_inner();
        let fingerprint = Fingerprint::from_slice(&it.fingerprint).unwrap();
        let (attempt_id, operation_id) = (AttemptId(uuid(&it.attempt_id)), OperationId(Uuid::new_v4()));
        let command = reserve(fingerprint, attempt_id, operation_id, &it.trace_context);
        let outcome = match self.apply(id(&it.scope, &it.key), command).0 {
            Answer::Granted(grant) => Outcome::Granted(granted(grant)),
            Answer::Replay(response) => Outcome::Replay(replay(&response)),
            Answer::InProgress => Outcome::InProgress(in_progress()),
            Answer::Mismatch => Outcome::Mismatch(proto::Mismatch {}),
            Answer::Stale(operation_id, token, _) => Outcome::Stale(proto::Stale {
                operation_id: operation_id.to_string(),
                fencing_token: token.0,
                reason: proto::StaleReason::InDoubt.into(),
                trace_context: String::new(),
            }),
            other => panic!("{other:?}"),
        };
        Ok(Response::new(proto::ReserveResponse { outcome: Some(outcome) }))
    }

    async fn reserve_many(&self, request: Request<proto::ReserveManyRequest>) -> Answered<proto::ReserveManyResponse> {
        let mut outcomes = Vec::new();
        for item in request.into_inner().items {
            outcomes.push(self.reserve(Request::new(item)).await?.into_inner());
        }
        Ok(Response::new(proto::ReserveManyResponse { outcomes }))
    }

    async fn complete_many(
        &self,
        request: Request<proto::CompleteManyRequest>,
    ) -> Answered<proto::CompleteManyResponse> {
        let mut outcomes = Vec::new();
        for item in request.into_inner().items {
            outcomes.push(self.complete(Request::new(item)).await?.into_inner());
        }
        Ok(Response::new(proto::CompleteManyResponse { outcomes }))
    }

    async fn reclaim(&self, request: Request<proto::ReclaimRequest>) -> Answered<proto::ReclaimResponse> {
        use proto::reclaim_response::Outcome;
        let it = request.into_inner();
        let command = Command::Reclaim {
            operation_id: OperationId(uuid(&it.operation_id)),
            token: FencingToken(it.fencing_token),
            attempt_id: AttemptId(uuid(&it.attempt_id)),
            lease: LEASE_DEFAULT,
        };
        let outcome = match self.apply(id(&it.scope, &it.key), command).0 {
            Answer::Granted(grant) => Outcome::Granted(granted(grant)),
            Answer::Replay(response) => Outcome::Replay(replay(&response)),
            Answer::InProgress => Outcome::InProgress(in_progress()),
            Answer::Absent => return Err(Status::not_found("no record")),
            other => panic!("{other:?}"),
        };
        Ok(Response::new(proto::ReclaimResponse { outcome: Some(outcome) }))
    }

    async fn complete(&self, request: Request<proto::CompleteRequest>) -> Answered<proto::CompleteResponse> {
        use proto::complete_response::Outcome;
        let it = request.into_inner();
        let response = it.response.unwrap();
        let headers = response.headers.into_iter().map(|header| (header.name, header.value)).collect();
        let command = Command::Complete {
            operation_id: OperationId(uuid(&it.operation_id)),
            token: FencingToken(it.fencing_token),
            response: idem_core::Response::new(response.status, headers, response.body, response.resource_id).unwrap(),
        };
        let outcome = match self.apply(id(&it.scope, &it.key), command) {
            (Answer::Completed, _) => Outcome::Completed(proto::Completed { expires_at: later() }),
            (_, record) => Outcome::Superseded(superseded(record.as_ref())),
        };
        Ok(Response::new(proto::CompleteResponse { outcome: Some(outcome) }))
    }

    async fn release(&self, request: Request<proto::ReleaseRequest>) -> Answered<proto::ReleaseResponse> {
        use proto::release_response::Outcome;
        let it = request.into_inner();
        let (operation_id, token) = (OperationId(uuid(&it.operation_id)), FencingToken(it.fencing_token));
        let outcome = match self.apply(id(&it.scope, &it.key), Command::Release { operation_id, token }) {
            (Answer::Released, _) => Outcome::Released(proto::Released {}),
            (_, record) => Outcome::Superseded(superseded(record.as_ref())),
        };
        Ok(Response::new(proto::ReleaseResponse { outcome: Some(outcome) }))
    }

    async fn abandon(&self, request: Request<proto::AbandonRequest>) -> Answered<proto::AbandonResponse> {
        use proto::abandon_response::Outcome;
        let it = request.into_inner();
        let (operation_id, token) = (OperationId(uuid(&it.operation_id)), FencingToken(it.fencing_token));
        let outcome = match self.apply(id(&it.scope, &it.key), Command::Abandon { operation_id, token }) {
            (Answer::Abandoned, _) => Outcome::Abandoned(proto::Abandoned {}),
            (_, record) => Outcome::Superseded(superseded(record.as_ref())),
        };
        Ok(Response::new(proto::AbandonResponse { outcome: Some(outcome) }))
    }

    async fn renew(&self, _: Request<proto::RenewRequest>) -> Answered<proto::RenewResponse> {
        Err(Status::unimplemented("the gateway does not renew"))
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answered<proto::GetResponse> {
        let key = (request.get_ref().scope.clone(), request.get_ref().key.clone());
        let records = self.records.lock().unwrap();
        let entry = records.get(&key).ok_or_else(|| Status::not_found("no record"))?;
        Ok(Response::new(proto::GetResponse { record: Some(shown(&key, &entry.record)) }))
    }
}

#[tonic::async_trait]
impl AdminService for FakeIdem {
    async fn list_audit(&self, _: Request<proto::ListAuditRequest>) -> Answered<proto::ListAuditResponse> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_stale(&self, request: Request<proto::ListStaleRequest>) -> Answered<proto::ListStaleResponse> {
        assert_eq!(request.get_ref().scope, "rest/*");
        let mut records = self.records.lock().unwrap();
        let stale = records.iter_mut().filter(|(_, entry)| {
            !entry.is_hidden && (entry.record.state == State::InDoubt || entry.record.is_lease_over())
        });
        let handed_out = stale.take(request.get_ref().limit as usize).map(|(key, entry)| {
            entry.is_hidden = true;
            shown(key, &entry.record)
        });
        Ok(Response::new(proto::ListStaleResponse { records: handed_out.collect() }))
    }

    async fn list(&self, _: Request<proto::ListRequest>) -> Answered<proto::ListResponse> {
        Err(Status::unimplemented("for operators"))
    }

    async fn stats(&self, _: Request<proto::StatsRequest>) -> Answered<proto::StatsResponse> {
        Err(Status::unimplemented("for operators"))
    }

    async fn count_live(&self, _: Request<proto::CountLiveRequest>) -> Answered<proto::CountLiveResponse> {
        let is_live = |entry: &&Entry| matches!(entry.record.state, State::InProgress | State::InDoubt);
        let keys = self.records.lock().unwrap().values().filter(is_live).count() as u64;
        Ok(Response::new(proto::CountLiveResponse { scopes: vec![proto::LiveKeys { scope: "rest/a".into(), keys }] }))
    }

    async fn resolve(&self, _: Request<proto::ResolveRequest>) -> Answered<proto::ResolveResponse> {
        Err(Status::unimplemented("for operators"))
    }
}
