//! The admin service over gRPC: what operators and reconcilers ask. Every call sees only the caller's scopes.

use std::sync::Arc;

use idem_core::Answer;
use idem_proto::idem::v1 as proto;
use proto::admin_service_server::AdminService;
use tonic::{Request, Response, Status};

use crate::engine::Engine;
use crate::rpc::Call;
use crate::status::Refusal;
use crate::store::{Audit, Filter};
use crate::wire::{admin as wire, answer};
use crate::{observe, scopes};

/// `idem.v1.AdminService` over an [`Engine`].
#[derive(Clone)]
pub(crate) struct AdminRpc {
    engine: Arc<Engine>,
}

// === impl AdminRpc ===

impl AdminRpc {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl AdminService for AdminRpc {
    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListResponse>, Status> {
        let call = Call::of(&request);
        observe::call("list", "list keys", async {
            let wire::List { scope, states, older_than, operation_id, after, page_size } =
                wire::list(request.into_inner())?;
            let filter = Filter { scopes: scopes::visible(&call.caller, scope)?, states, older_than, operation_id };
            // One more than asked says whether there is a next page.
            let entries = self.engine.list(&filter, after.as_ref(), page_size + 1, call.deadline).await?;
            Ok((wire::list_response(entries, page_size), "listed"))
        })
        .await
    }

    async fn stats(&self, request: Request<proto::StatsRequest>) -> Result<Response<proto::StatsResponse>, Status> {
        let call = Call::of(&request);
        observe::call("stats", "count keys", async {
            let scopes = scopes::visible(&call.caller, wire::stats(request.into_inner())?)?;
            let counts = self.engine.count(&scopes, call.deadline).await?;
            Ok((wire::stats_response(&counts), "counted"))
        })
        .await
    }

    async fn count_live(
        &self,
        request: Request<proto::CountLiveRequest>,
    ) -> Result<Response<proto::CountLiveResponse>, Status> {
        let call = Call::of(&request);
        observe::call("count_live", "count live keys", async {
            let scopes = scopes::visible(&call.caller, wire::count_live(request.into_inner())?)?;
            let live = self.engine.count_live(&scopes, call.deadline).await?;
            Ok((wire::count_live_response(live), "counted"))
        })
        .await
    }

    async fn list_stale(
        &self,
        request: Request<proto::ListStaleRequest>,
    ) -> Result<Response<proto::ListStaleResponse>, Status> {
        let call = Call::of(&request);
        observe::call("list_stale", "hand out keys", async {
            let wire::ListStale { scope, limit, hide } = wire::list_stale(request.into_inner())?;
            let scopes = scopes::visible(&call.caller, scope)?;
            let entries = self.engine.hand_out_stale(&scopes, limit, hide, call.deadline).await?;
            Ok((wire::list_stale_response(&entries), "handed_out"))
        })
        .await
    }

    async fn list_audit(
        &self,
        request: Request<proto::ListAuditRequest>,
    ) -> Result<Response<proto::ListAuditResponse>, Status> {
        let call = Call::of(&request);
        observe::call("list_audit", "list audit", async {
            let wire::ListAudit { scope, key, before, page_size } = wire::list_audit(request.into_inner())?;
            let scopes = scopes::visible(&call.caller, scope)?;
            let lines = self.engine.audits(&scopes, key.as_ref(), before, page_size, call.deadline).await?;
            Ok((wire::list_audit_response(lines), "listed"))
        })
        .await
    }

    async fn resolve(
        &self,
        request: Request<proto::ResolveRequest>,
    ) -> Result<Response<proto::ResolveResponse>, Status> {
        let call = Call::of(&request);
        observe::call("resolve", "resolve key", async {
            let wire::Resolve { key, command, action, reason, operator } = wire::resolve(request.into_inner())?;
            call.admit(&key)?;
            let audit = Audit { action, reason, operator, service: call.caller.service().to_owned() };
            let outcome = self.engine.resolve(&key, command, audit, call.deadline).await?;
            let label = observe::note_outcome(&outcome);
            match outcome.answer {
                Answer::Resolved => Ok((wire::resolve_response(&key, &outcome), label)),
                Answer::AlreadyCompleted => Err(Refusal::AlreadyCompleted),
                Answer::TokenChanged(current) => Err(Refusal::TokenChanged { current: current.0 }),
                Answer::Absent => Err(Refusal::NoRecord),
                ref foreign => Err(answer::misfit("Resolve", foreign)),
            }
        })
        .await
    }
}
