//! The idempotency service over gRPC: read the request, ask the engine, write the answer.

mod many;

use std::sync::Arc;

use chassis::deadline::Deadline;
use chassis::service_auth::Caller;
use idem_core::Command;
use idem_proto::idem::v1 as proto;
use proto::idempotency_service_server::IdempotencyService;
use tonic::{Request, Response, Status};

use crate::engine::{Engine, Outcome};
use crate::observe;
use crate::status::Refusal;
use crate::store::KeyId;
use crate::wire::{answer, record, request as read};

/// `idem.v1.IdempotencyService` over an [`Engine`].
pub(crate) struct Rpc {
    engine: Arc<Engine>,
}

/// Who calls, and how long it waits.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) deadline: Option<Deadline>,
}

// === impl Call ===

impl Call {
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        Self { caller: Caller::from_request(request), deadline: Deadline::of(request) }
    }

    /// Refuses a key of a scope that the caller may not use; notes any other for the trace.
    pub(crate) fn admit(&self, key: &KeyId) -> Result<(), Refusal> {
        if !self.may_use(key) {
            return Err(Refusal::ScopeNotGranted);
        }
        observe::note_key(key);
        Ok(())
    }

    fn may_use(&self, key: &KeyId) -> bool {
        self.caller.may_use_scope(key.scope.as_str())
    }
}

// === impl Rpc ===

impl Rpc {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn carry_out(&self, call: &Call, key: &KeyId, command: Command) -> Result<Outcome, Refusal> {
        call.admit(key)?;
        Ok(self.engine.carry_out(key, command, call.deadline).await?)
    }
}

#[tonic::async_trait]
impl IdempotencyService for Rpc {
    async fn reserve(
        &self,
        request: Request<proto::ReserveRequest>,
    ) -> Result<Response<proto::ReserveResponse>, Status> {
        let call = Call::of(&request);
        observe::call("reserve", "reserve key", async {
            let read::Reserve { key, command, wait } = read::reserve(request.into_inner())?;
            call.admit(&key)?;
            let outcome = self.engine.reserve(&key, command, wait, call.deadline).await?;
            Ok((answer::reserve(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn reserve_many(
        &self,
        request: Request<proto::ReserveManyRequest>,
    ) -> Result<Response<proto::ReserveManyResponse>, Status> {
        let call = Call::of(&request);
        let outcomes = self.each(&many::RESERVE, call, request.into_inner().items).await?;
        Ok(Response::new(proto::ReserveManyResponse { outcomes }))
    }

    async fn complete_many(
        &self,
        request: Request<proto::CompleteManyRequest>,
    ) -> Result<Response<proto::CompleteManyResponse>, Status> {
        let call = Call::of(&request);
        let outcomes = self.each(&many::COMPLETE, call, request.into_inner().items).await?;
        Ok(Response::new(proto::CompleteManyResponse { outcomes }))
    }

    async fn reclaim(
        &self,
        request: Request<proto::ReclaimRequest>,
    ) -> Result<Response<proto::ReclaimResponse>, Status> {
        let call = Call::of(&request);
        observe::call("reclaim", "reclaim key", async {
            let read::OnKey { key, command } = read::reclaim(request.into_inner())?;
            let outcome = self.carry_out(&call, &key, command).await?;
            Ok((answer::reclaim(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn complete(
        &self,
        request: Request<proto::CompleteRequest>,
    ) -> Result<Response<proto::CompleteResponse>, Status> {
        let call = Call::of(&request);
        observe::call("complete", "complete key", async {
            let read::OnKey { key, command } = read::complete(request.into_inner())?;
            let outcome = self.carry_out(&call, &key, command).await?;
            Ok((answer::complete(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::ReleaseResponse>, Status> {
        let call = Call::of(&request);
        observe::call("release", "release key", async {
            let read::OnKey { key, command } = read::release(request.into_inner())?;
            let outcome = self.carry_out(&call, &key, command).await?;
            Ok((answer::release(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn abandon(
        &self,
        request: Request<proto::AbandonRequest>,
    ) -> Result<Response<proto::AbandonResponse>, Status> {
        let call = Call::of(&request);
        observe::call("abandon", "abandon key", async {
            let read::OnKey { key, command } = read::abandon(request.into_inner())?;
            let outcome = self.carry_out(&call, &key, command).await?;
            Ok((answer::abandon(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> Result<Response<proto::RenewResponse>, Status> {
        let call = Call::of(&request);
        observe::call("renew", "renew key", async {
            let read::OnKey { key, command } = read::renew(request.into_inner())?;
            let outcome = self.carry_out(&call, &key, command).await?;
            Ok((answer::renew(&outcome)?, observe::note_outcome(&outcome)))
        })
        .await
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        let call = Call::of(&request);
        observe::call("get", "get key", async {
            let proto::GetRequest { scope, key } = request.into_inner();
            let key = read::key_id(scope, key)?;
            call.admit(&key)?;
            let snapshot = self.engine.get(&key, call.deadline).await?;
            let record = record::key_record(&key, &snapshot).ok_or(Refusal::NoRecord)?;
            Ok((proto::GetResponse { record: Some(record) }, "found"))
        })
        .await
    }
}
