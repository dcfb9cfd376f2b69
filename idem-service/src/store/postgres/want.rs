//! The writes of a batch as parameters: a list per column, a place in each list per write.

use std::borrow::Cow;

use tokio::time::Instant;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Param;
use crate::sealing::Sealing;
use crate::store::stored::{self, ResponseColumns};
use crate::store::{Audit, SwapRequest, Version};

/// The columns of `want`.
#[derive(Default)]
pub(super) struct Want<'w> {
    scope: Vec<&'w str>,
    key: Vec<&'w str>,
    seen_operation_id: Vec<Option<Uuid>>,
    seen_version: Vec<Option<i64>>,
    is_new: Vec<bool>,
    operation_id: Vec<Uuid>,
    fencing_token: Vec<i64>,
    fingerprint: Vec<&'w [u8]>,
    attempt_id: Vec<Uuid>,
    granted_by: Vec<&'static str>,
    past_attempts: Vec<Vec<u8>>,
    attempts: Vec<i64>,
    retention_micros: Vec<i64>,
    trace_context: Vec<&'w str>,
    state: Vec<&'static str>,
    lease_micros: Vec<Option<i64>>,
    kept_micros: Vec<Option<i64>>,
    response_status: Vec<Option<i64>>,
    response_headers: Vec<Option<String>>,
    response_resource_id: Vec<Option<Cow<'w, str>>>,
    response_body: Vec<Option<Cow<'w, [u8]>>>,
    audit_action: Vec<Option<&'w str>>,
    audit_reason: Vec<Option<&'w str>>,
    audit_operator: Vec<Option<&'w str>>,
    audit_service: Vec<Option<&'w str>>,
    until: Vec<Option<Instant>>,
}

// === impl Want ===

impl<'w> Want<'w> {
    /// In the order given, which is the order of locking.
    pub(super) fn of(writes: impl Iterator<Item = &'w SwapRequest>, sealing: &Sealing) -> Self {
        let mut want = Self::default();
        writes.for_each(|write| want.push(write, sealing));
        want
    }

    fn push(&mut self, write: &'w SwapRequest, sealing: &Sealing) {
        let record = &write.put.record;
        let seen = match write.seen {
            Version::Absent => None,
            Version::At { operation_id, number } => Some((operation_id.0, number)),
        };
        self.scope.push(write.key.scope.as_str());
        self.key.push(write.key.key.as_str());
        self.seen_operation_id.push(seen.map(|(operation_id, _)| operation_id));
        self.seen_version.push(seen.map(|(_, number)| number));
        self.is_new.push(write.put.is_new);
        self.operation_id.push(record.operation_id.0);
        self.fencing_token.push(record.token.0);
        self.fingerprint.push(record.fingerprint.as_bytes());
        self.attempt_id.push(record.attempt_id.0);
        self.granted_by.push(stored::granted_by_name(record.granted_by));
        self.past_attempts.push(stored::pack(&record.past_attempts));
        self.attempts.push(record.attempts.into());
        self.retention_micros.push(stored::micros(record.retention.get()));
        self.trace_context.push(record.trace_context.as_str());
        self.state.push(record.state.name().as_str());
        self.lease_micros.push(stored::lease(&write.put).map(stored::micros));
        self.kept_micros.push(stored::retention(&write.put).map(stored::micros));
        self.push_response(ResponseColumns::of(write, sealing));
        self.push_audit(write.audit.as_ref());
        self.until.push(write.until);
    }

    fn push_response(&mut self, response: Option<ResponseColumns<'w>>) {
        let (status, headers, resource_id, body) = match response {
            Some(it) => (Some(it.status), Some(it.headers), Some(it.resource_id), Some(it.body)),
            None => (None, None, None, None),
        };
        self.response_status.push(status);
        self.response_headers.push(headers);
        self.response_resource_id.push(resource_id);
        self.response_body.push(body);
    }

    fn push_audit(&mut self, audit: Option<&'w Audit>) {
        self.audit_action.push(audit.map(|audit| audit.action));
        self.audit_reason.push(audit.map(|audit| audit.reason.as_str()));
        self.audit_operator.push(audit.map(|audit| audit.operator.as_str()));
        self.audit_service.push(audit.map(|audit| audit.service.as_str()));
    }

    /// How long each write may still wait, in microseconds: for the very moment at which the statement is sent.
    pub(super) fn patience(&self) -> Vec<Option<i64>> {
        let now = Instant::now();
        self.until.iter().map(|until| until.map(|until| stored::micros(until.saturating_duration_since(now)))).collect()
    }

    /// The parameters of the statement, in its order.
    pub(super) fn params<'p>(&'p self, offset: &'p i64, patience: &'p Vec<Option<i64>>) -> [Param<'p>; 27] {
        [
            (offset, Type::INT8),
            (&self.scope, Type::TEXT_ARRAY),
            (&self.key, Type::TEXT_ARRAY),
            (&self.seen_operation_id, Type::UUID_ARRAY),
            (&self.seen_version, Type::INT8_ARRAY),
            (&self.is_new, Type::BOOL_ARRAY),
            (&self.operation_id, Type::UUID_ARRAY),
            (&self.fencing_token, Type::INT8_ARRAY),
            (&self.fingerprint, Type::BYTEA_ARRAY),
            (&self.attempt_id, Type::UUID_ARRAY),
            (&self.granted_by, Type::TEXT_ARRAY),
            (&self.past_attempts, Type::BYTEA_ARRAY),
            (&self.attempts, Type::INT8_ARRAY),
            (&self.retention_micros, Type::INT8_ARRAY),
            (&self.trace_context, Type::TEXT_ARRAY),
            (&self.state, Type::TEXT_ARRAY),
            (&self.lease_micros, Type::INT8_ARRAY),
            (&self.kept_micros, Type::INT8_ARRAY),
            (&self.response_status, Type::INT8_ARRAY),
            (&self.response_headers, Type::TEXT_ARRAY),
            (&self.response_resource_id, Type::TEXT_ARRAY),
            (&self.response_body, Type::BYTEA_ARRAY),
            (&self.audit_action, Type::TEXT_ARRAY),
            (&self.audit_reason, Type::TEXT_ARRAY),
            (&self.audit_operator, Type::TEXT_ARRAY),
            (&self.audit_service, Type::TEXT_ARRAY),
            (patience, Type::INT8_ARRAY),
        ]
    }
}
