//! Requests of the idempotency service → commands of the core.

use std::time::Duration;

use idem_core::{
    AttemptId, Command, FencingToken, Fingerprint, OperationId, RETENTION_DEFAULT, RetentionPeriod, TraceContext,
    WAIT_MAX,
};
use idem_proto::idem::v1 as proto;
use uuid::Uuid;

use super::violations::Violations;
use crate::status::Refusal;
use crate::store::KeyId;

/// A Reserve: which key, the command, and how long to wait for a running holder.
pub(crate) struct Reserve {
    pub(crate) key: KeyId,
    pub(crate) command: Command,
    pub(crate) wait: Duration,
}

/// Any other command on a key.
pub(crate) struct OnKey {
    pub(crate) key: KeyId,
    pub(crate) command: Command,
}

pub(crate) fn reserve(request: proto::ReserveRequest) -> Result<Reserve, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(request.scope, request.key);
    let fingerprint = violations.take("fingerprint", Fingerprint::from_slice(&request.fingerprint));
    let attempt_id = attempt_id(&mut violations, &request.attempt_id);
    let lease = violations.lease("lease", request.lease);
    let retention = violations.duration("retention", request.retention, RETENTION_DEFAULT.get());
    // A retention is judged against the lease; without a valid one, saying what is wrong with the lease is enough.
    let retention = retention.zip(lease);
    let retention = retention.and_then(|(it, lease)| violations.take("retention", RetentionPeriod::new(it, lease)));
    let wait = wait(&mut violations, request.wait);
    let trace_context = violations.take("trace_context", TraceContext::new(request.trace_context));
    let reserve = || {
        let command = Command::Reserve {
            fingerprint: fingerprint?,
            attempt_id: attempt_id?,
            // Becomes the operation id only if the key turns out to be new.
            operation_id: OperationId(Uuid::new_v4()),
            lease: lease?,
            retention: retention?,
            trace_context: trace_context?,
        };
        Some(Reserve { key: key?, command, wait: wait? })
    };
    let reserve = reserve();
    violations.finish(reserve)
}

pub(crate) fn reclaim(request: proto::ReclaimRequest) -> Result<OnKey, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(request.scope, request.key);
    let operation_id = violations.operation_id(&request.operation_id);
    let attempt_id = attempt_id(&mut violations, &request.attempt_id);
    let lease = violations.lease("lease", request.lease);
    let token = FencingToken(request.fencing_token);
    let reclaim = || {
        let command = Command::Reclaim { operation_id: operation_id?, token, attempt_id: attempt_id?, lease: lease? };
        Some(OnKey { key: key?, command })
    };
    let reclaim = reclaim();
    violations.finish(reclaim)
}

pub(crate) fn complete(request: proto::CompleteRequest) -> Result<OnKey, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(request.scope, request.key);
    let operation_id = violations.operation_id(&request.operation_id);
    let token = FencingToken(request.fencing_token);
    let response = match request.response {
        Some(response) => violations.response("response", response),
        None => violations.refuse("response", "is missing: it is what a retry will be answered with"),
    };
    // Whoever reads the message has taken it already; here it is only judged.
    let trace_context = violations.take("trace_context", TraceContext::new(request.trace_context));
    let complete = || {
        trace_context?;
        let command = Command::Complete { operation_id: operation_id?, token, response: response? };
        Some(OnKey { key: key?, command })
    };
    let complete = complete();
    violations.finish(complete)
}

pub(crate) fn release(request: proto::ReleaseRequest) -> Result<OnKey, Refusal> {
    let proto::ReleaseRequest { scope, key, operation_id, fencing_token } = request;
    held(scope, key, &operation_id, |operation_id| Command::Release {
        operation_id,
        token: FencingToken(fencing_token),
    })
}

pub(crate) fn abandon(request: proto::AbandonRequest) -> Result<OnKey, Refusal> {
    let proto::AbandonRequest { scope, key, operation_id, fencing_token } = request;
    held(scope, key, &operation_id, |operation_id| Command::Abandon {
        operation_id,
        token: FencingToken(fencing_token),
    })
}

pub(crate) fn renew(request: proto::RenewRequest) -> Result<OnKey, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(request.scope, request.key);
    let operation_id = violations.operation_id(&request.operation_id);
    let lease = violations.lease("lease", request.lease);
    let token = FencingToken(request.fencing_token);
    let renew = || {
        let command = Command::Renew { operation_id: operation_id?, token, lease: lease? };
        Some(OnKey { key: key?, command })
    };
    let renew = renew();
    violations.finish(renew)
}

pub(crate) fn key_id(scope: String, key: String) -> Result<KeyId, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(scope, key);
    violations.finish(key)
}

fn held(
    scope: String,
    key: String,
    operation_id: &str,
    command: impl FnOnce(OperationId) -> Command,
) -> Result<OnKey, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(scope, key);
    let command = violations.operation_id(operation_id).map(command);
    let on_key = key.zip(command).map(|(key, command)| OnKey { key, command });
    violations.finish(on_key)
}

fn attempt_id(violations: &mut Violations, text: &str) -> Option<AttemptId> {
    match violations.uuid("attempt_id", text)? {
        // A caller that never sets its attempt id would share one with every other such caller, and both would be granted.
        nil if nil.is_nil() => violations.refuse("attempt_id", "must be minted for this try, not the nil UUID"),
        attempt_id => Some(AttemptId(attempt_id)),
    }
}

fn wait(violations: &mut Violations, wait: Option<prost_types::Duration>) -> Option<Duration> {
    match violations.duration("wait", wait, Duration::ZERO)? {
        wait if wait > WAIT_MAX => violations.refuse("wait", format_args!("must be at most {}s", WAIT_MAX.as_secs())),
        wait => Some(wait),
    }
}
