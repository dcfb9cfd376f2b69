//! Reading records: one by its key, and those whose holder is gone.

use std::time::SystemTime;

use idem_core::{FencingToken, IdempotencyKey, LeaseDuration, OperationId, Scope, StateName, TraceContext};
use idem_proto::idem::v1 as proto;
use tokio::time::Instant;
use tonic::Code;

use crate::{
    ClientError, IdemClient, KeyId,
    connect::{admin, keys},
    repeat::Tries,
    wire,
};

/// A record without its body.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyRecord {
    /// Which key.
    pub key: KeyId,
    /// Where it is in its life.
    pub state: StateName,
    /// The intent.
    pub operation_id: OperationId,
    /// The latest.
    pub token: FencingToken,
    /// How often the key was granted since its first reservation.
    pub attempts: u32,
    /// When the key was first reserved.
    pub created_at: SystemTime,
    /// When the record last changed.
    pub updated_at: Option<SystemTime>,
    /// Set while in progress.
    pub lease_expires_at: Option<SystemTime>,
    /// In progress, and the lease is over by the store's clock.
    pub is_lease_over: bool,
    /// Set when completed.
    pub completed_at: Option<SystemTime>,
    /// Set when completed or released: the end of the retention.
    pub expires_at: Option<SystemTime>,
    /// Status of the stored answer, when completed.
    pub status: Option<u16>,
    /// The id of what was made; empty unless completed.
    pub resource_id: String,
    /// The trace of the latest attempt.
    pub trace_context: TraceContext,
}

/// How many keys of a scope are in progress or in doubt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveKeys {
    /// Whose.
    pub scope: Scope,
    /// How many.
    pub keys: u64,
}

impl IdemClient {
    /// Reads the record without its body; none when there is none, or its retention is over.
    pub async fn get(&self, key: &KeyId, deadline: Instant) -> Result<Option<KeyRecord>, ClientError> {
        let (scope, key) = wire::names(key);
        let send = async |channel, request| keys(channel).get(request).await;
        let message = proto::GetRequest { scope, key };
        match self.channels.call("IdempotencyService/Get", message, Tries::Many, deadline, send).await {
            Ok(answer) => read(answer.record.ok_or(ClientError::Malformed("a Get without a record"))?).map(Some),
            Err(ClientError::Refused { code: Code::NotFound, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts the keys in progress and in doubt of each scope that has any. `scope` is exact, or a prefix ending in `*`.
    pub async fn live_keys(&self, scope: &str, deadline: Instant) -> Result<Vec<LiveKeys>, ClientError> {
        let message = proto::CountLiveRequest { scope: scope.to_owned() };
        let send = async |channel, request| admin(channel).count_live(request).await;
        let answer = self.channels.call("AdminService/CountLive", message, Tries::Many, deadline, send).await?;
        let read = |live: proto::LiveKeys| {
            let scope = Scope::new(live.scope).map_err(|_| ClientError::Malformed("a scope that is out of bounds"))?;
            Ok(LiveKeys { scope, keys: live.keys })
        };
        answer.scopes.into_iter().map(read).collect()
    }

    /// Hands out keys whose holder is gone, for a reconciler to settle, and hides each from every other caller for one
    /// `recovery_lease`. `scope` is exact, or a prefix ending in `*`.
    ///
    /// Made once: a repeat after a lost answer would find the rows hidden.
    pub async fn list_stale(
        &self,
        scope: &str,
        limit: u32,
        recovery_lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Vec<KeyRecord>, ClientError> {
        let message = proto::ListStaleRequest {
            limit,
            recovery_lease: Some(wire::duration(recovery_lease.get())),
            scope: scope.to_owned(),
        };
        let send = async |channel, request| admin(channel).list_stale(request).await;
        let answer = self.channels.call("AdminService/ListStale", message, Tries::One, deadline, send).await?;
        answer.records.into_iter().map(read).collect()
    }
}

fn read(it: proto::KeyRecord) -> Result<KeyRecord, ClientError> {
    let state = wire::state(it.state()).ok_or(ClientError::Malformed("a record without a state"))?;
    let scope = Scope::new(it.scope).map_err(|_| ClientError::Malformed("a scope that is out of bounds"))?;
    let key = IdempotencyKey::new(it.key).map_err(|_| ClientError::Malformed("a key that is out of bounds"))?;
    let created_at = wire::time(it.created_at)?;
    Ok(KeyRecord {
        key: KeyId { scope, key },
        state,
        operation_id: wire::operation_id(&it.operation_id)?,
        token: FencingToken(it.fencing_token),
        attempts: it.attempts,
        created_at: created_at.ok_or(ClientError::Malformed("a record without its time"))?,
        updated_at: wire::time(it.updated_at)?,
        lease_expires_at: wire::time(it.lease_expires_at)?,
        is_lease_over: it.lease_over,
        completed_at: wire::time(it.completed_at)?,
        expires_at: wire::time(it.expires_at)?,
        status: u16::try_from(it.status).ok().filter(|status| *status != 0),
        resource_id: it.resource_id,
        trace_context: wire::trace_context(it.trace_context),
    })
}
