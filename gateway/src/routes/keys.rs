//! What became of a key, for its owner.

use super::{Answered, mutation::sent, path::Segment};
use crate::{
    auth::Principal,
    error::{Failure, catalogue},
    wire,
};
use axum::{Router, extract::State, routing::get};
use chassis::clock::format_rfc3339;
use http::StatusCode;
use idem_client::{ClientError, IdemClient, KeyId, KeyRecord};
use idem_core::IdempotencyKey;
use idem_layer::Problem;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// How long the idempotency service may take: a client is told within two seconds when it is away.
const PATIENCE: Duration = Duration::from_millis(1800);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyState<'k> {
    key: &'k str,
    state: &'static str,
    attempts: u32,
    created_at: String,
    lease_expires_at: Option<String>,
    expires_at: Option<String>,
    status_code: Option<u16>,
}

/// `GET /v1/idempotency-keys/{key}`
pub(super) fn router(idem: IdemClient) -> Router {
    Router::new().route("/v1/idempotency-keys/{key}", get(state)).with_state(idem)
}

async fn state(State(idem): State<IdemClient>, principal: Principal, Segment(key): Segment) -> Answered {
    // What cannot be a key was never used as one.
    let key = IdempotencyKey::new(key).map_err(|error| catalogue::NOT_FOUND.problem(error.to_string()))?;
    let id = KeyId { scope: principal.tenant.scope().clone(), key };
    let record = idem.get(&id, Instant::now() + PATIENCE).await.map_err(|error| unavailable(&error))?;
    let record =
        record.ok_or_else(|| catalogue::NOT_FOUND.problem("this key was not used, or its retention is over"))?;
    Ok(sent(wire::body(StatusCode::OK, &KeyState::of(&record))))
}

fn unavailable(error: &ClientError) -> Failure {
    tracing::warn!(error = error as &dyn std::error::Error, "a key could not be read");
    Problem::idempotency_unavailable().into()
}

// === impl KeyState ===

impl<'k> KeyState<'k> {
    fn of(record: &'k KeyRecord) -> Self {
        Self {
            key: record.key.key.as_str(),
            state: record.state.as_str(),
            attempts: record.attempts,
            created_at: format_rfc3339(record.created_at),
            lease_expires_at: record.lease_expires_at.map(format_rfc3339),
            expires_at: record.expires_at.map(format_rfc3339),
            status_code: record.status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::{FencingToken, OperationId, Scope, StateName, TraceContext};
    use std::time::SystemTime;
    use uuid::Uuid;

    #[test]
    fn what_does_not_apply_is_null() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut record = KeyRecord {
            key: KeyId { scope: Scope::new("rest/a").unwrap(), key: IdempotencyKey::new("k/1 é").unwrap() },
            state: StateName::InProgress,
            operation_id: OperationId(Uuid::nil()),
            token: FencingToken::FIRST,
            attempts: 2,
            created_at: at(0),
            updated_at: Some(at(1)),
            lease_expires_at: Some(at(60)),
            is_lease_over: false,
            completed_at: None,
            expires_at: None,
            status: None,
            resource_id: String::new(),
            trace_context: TraceContext::default(),
        };
        let shown = |record: &KeyRecord| serde_json::to_string(&KeyState::of(record)).unwrap();
        assert_eq!(
            shown(&record),
            r#"{"key":"k/1 é","state":"in_progress","attempts":2,"createdAt":"1970-01-01T00:00:00.000Z","leaseExpiresAt":"1970-01-01T00:01:00.000Z","expiresAt":null,"statusCode":null}"#
        );
        record.state = StateName::Completed;
        (record.lease_expires_at, record.expires_at, record.status) = (None, Some(at(86_400)), Some(201));
        assert!(
            shown(&record)
                .ends_with(r#""leaseExpiresAt":null,"expiresAt":"1970-01-02T00:00:00.000Z","statusCode":201}"#)
        );
    }
}
