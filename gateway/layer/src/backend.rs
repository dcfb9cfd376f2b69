//! The idempotency service as the layer's backend.

use async_trait::async_trait;
use idem_client::{ClientError, IdemClient, Intent};
use idem_core::{AttemptId, FencingToken, LeaseDuration, OperationId, Response};
use tokio::time::Instant;

use crate::ports::{Backend, BackendError, Finished, Held, KeyId, Reclaimed, Replay, ReserveCall, Reserved};

#[async_trait]
impl Backend for IdemClient {
    async fn reserve(&self, call: ReserveCall, deadline: Instant) -> Result<Reserved, BackendError> {
        let intent = Intent {
            key: client_key(&call.key),
            fingerprint: call.fingerprint,
            attempt_id: call.attempt_id,
            lease: call.lease,
            retention: call.retention,
            wait: call.wait,
            trace_context: call.trace_context,
        };
        Ok(match IdemClient::reserve(self, &intent, deadline).await? {
            idem_client::Reserved::Granted(granted) => Reserved::Granted(held(granted)),
            idem_client::Reserved::Replay(it) => Reserved::Replay(replay(it)),
            idem_client::Reserved::InProgress { .. } => Reserved::InProgress,
            idem_client::Reserved::Mismatch => Reserved::Mismatch,
            idem_client::Reserved::Stale(it) => {
                Reserved::Stale { operation_id: it.operation_id, token: it.token, trace_context: it.trace_context }
            }
        })
    }

    async fn reclaim(
        &self,
        key: &KeyId,
        seen: (OperationId, FencingToken),
        attempt_id: AttemptId,
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Reclaimed, BackendError> {
        Ok(match IdemClient::reclaim(self, &client_key(key), seen, attempt_id, lease, deadline).await? {
            idem_client::Reclaimed::Granted(granted) => Reclaimed::Granted(held(granted)),
            idem_client::Reclaimed::Replay(it) => Reclaimed::Replay(replay(it)),
            // A record that is gone was settled by somebody: the client's next try finds the key new.
            idem_client::Reclaimed::InProgress { .. } | idem_client::Reclaimed::Absent => Reclaimed::InProgress,
        })
    }

    async fn complete(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        response: Response,
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        Ok(finished(IdemClient::complete(self, &client_key(key), held, &response, deadline).await?))
    }

    async fn release(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        Ok(finished(IdemClient::release(self, &client_key(key), held, deadline).await?))
    }

    async fn abandon(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        Ok(finished(IdemClient::abandon(self, &client_key(key), held, deadline).await?))
    }
}

// A refusal is a fault of the deployment, a grant that is missing; for the client it is the same as a service that is away.
impl From<ClientError> for BackendError {
    fn from(error: ClientError) -> Self {
        if let ClientError::Refused { .. } | ClientError::Malformed(_) = &error {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the idempotency service does not take this call"
            );
        }
        Self(error.into())
    }
}

fn client_key(key: &KeyId) -> idem_client::KeyId {
    idem_client::KeyId { scope: key.scope.clone(), key: key.key.clone() }
}

fn held(granted: idem_client::Granted) -> Held {
    Held { grant: granted.grant, lease_expires_at: granted.lease_expires_at }
}

fn replay(it: idem_client::Replay) -> Replay {
    Replay {
        response: it.response,
        expires_at: it.expires_at,
        expires_in: it.expires_in,
        trace_context: it.trace_context,
    }
}

fn finished(it: idem_client::Finished) -> Finished {
    match it {
        idem_client::Finished::Done(expires_at) => Finished::Done(expires_at),
        idem_client::Finished::Superseded(by) => {
            Finished::Superseded(by.state, by.replay.map(|it| Box::new(replay(*it))))
        }
    }
}
