//! The calls, one for each RPC.

use std::{sync::Arc, time::Duration};

use idem_core::{AttemptId, FencingToken, LeaseDuration, OperationId, Response};
use idem_proto::idem::v1 as proto;
use tokio::time::Instant;
use tonic::Code;

use crate::{
    Builder, ClientError, ConnectError, Finished, Intent, KeyId, Reclaimed, Renewed, Reserved, ServiceToken,
    connect::{Channels, keys},
    fold::Fold,
    repeat::Tries,
    wire,
};

/// The idempotency service. Cheap to clone; every clone shares the connections.
///
/// Every call returns by its deadline and is repeated inside until then when it may not have arrived.
#[derive(Clone)]
pub struct IdemClient {
    pub(crate) channels: Arc<Channels>,
    reserves: Fold<proto::ReserveRequest>,
    completes: Fold<proto::CompleteRequest>,
}

impl IdemClient {
    /// How to connect to `endpoint`, for example `http://127.0.0.1:7001`.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint)
    }

    /// A client with the default settings, that connects at its first call. Must be called on a tokio runtime.
    pub fn connect_lazy(endpoint: impl Into<String>, token: Option<ServiceToken>) -> Result<Self, ConnectError> {
        Builder::new(endpoint).token(token).connect_lazy()
    }

    pub(crate) fn over(channels: Channels, fold: bool) -> Self {
        let channels = Arc::new(channels);
        let (reserves, completes) = (Fold::new(&channels, fold), Fold::new(&channels, fold));
        Self { channels, reserves, completes }
    }

    /// Claims a key. Waits for a running holder as long as the intent says; let the deadline be later than that.
    pub async fn reserve(&self, intent: &Intent, deadline: Instant) -> Result<Reserved, ClientError> {
        let message = wire::reserve_request(intent);
        if intent.wait == Duration::ZERO {
            return wire::reserved(self.reserves.ask(message, deadline).await?);
        }
        // Whoever waits for a holder would keep the others waiting.
        let (rpc, tries) = ("IdempotencyService/Reserve", Tries::Waiting(intent.wait));
        let send = async |channel, request| keys(channel).reserve(request).await;
        wire::reserved(self.channels.call(rpc, message, tries, deadline, send).await?)
    }

    /// Fences the former holder, seen as `(operation_id, token)`, and takes over. One caller wins.
    pub async fn reclaim(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        attempt_id: AttemptId,
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Reclaimed, ClientError> {
        let (scope, key) = wire::names(key);
        let message = proto::ReclaimRequest {
            scope,
            key,
            operation_id: operation_id.to_string(),
            fencing_token: token.0,
            attempt_id: attempt_id.to_string(),
            lease: Some(wire::duration(lease.get())),
        };
        let send = async |channel, request| keys(channel).reclaim(request).await;
        match self.channels.call("IdempotencyService/Reclaim", message, Tries::Many, deadline, send).await {
            Ok(answer) => wire::reclaimed(answer),
            Err(ClientError::Refused { code: Code::NotFound, .. }) => Ok(Reclaimed::Absent),
            Err(error) => Err(error),
        }
    }

    /// Stores the answer; durable when it returns. The first one stored stands.
    pub async fn complete(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        response: &Response,
        deadline: Instant,
    ) -> Result<Finished, ClientError> {
        let (scope, key) = wire::names(key);
        let message = proto::CompleteRequest {
            scope,
            key,
            operation_id: operation_id.to_string(),
            fencing_token: token.0,
            response: Some(wire::stored_response(response)),
            trace_context: String::new(),
        };
        wire::completed(self.completes.ask(message, deadline).await?)
    }

    /// Says that nothing happened: the key can be reserved again at once.
    pub async fn release(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, ClientError> {
        let (scope, key) = wire::names(key);
        let message =
            proto::ReleaseRequest { scope, key, operation_id: operation_id.to_string(), fencing_token: token.0 };
        let send = async |channel, request| keys(channel).release(request).await;
        wire::released(self.channels.call("IdempotencyService/Release", message, Tries::Many, deadline, send).await?)
    }

    /// Says that the outcome is unknown: the next Reserve is stale at once.
    pub async fn abandon(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, ClientError> {
        let (scope, key) = wire::names(key);
        let message =
            proto::AbandonRequest { scope, key, operation_id: operation_id.to_string(), fencing_token: token.0 };
        let send = async |channel, request| keys(channel).abandon(request).await;
        wire::abandoned(self.channels.call("IdempotencyService/Abandon", message, Tries::Many, deadline, send).await?)
    }

    /// Extends the lease of a running holder, counted from now.
    pub async fn renew(
        &self,
        key: &KeyId,
        (operation_id, token): (OperationId, FencingToken),
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Renewed, ClientError> {
        let (scope, key) = wire::names(key);
        let message = proto::RenewRequest {
            scope,
            key,
            operation_id: operation_id.to_string(),
            fencing_token: token.0,
            lease: Some(wire::duration(lease.get())),
        };
        let send = async |channel, request| keys(channel).renew(request).await;
        wire::renewed(self.channels.call("IdempotencyService/Renew", message, Tries::Many, deadline, send).await?)
    }
}
