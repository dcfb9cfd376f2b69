//! Collects what is wrong with a request, field by field, so that a caller hears all of it at once.

use std::fmt::Display;
use std::time::Duration;

use idem_core::{IdempotencyKey, LEASE_DEFAULT, LeaseDuration, OperationId, Response, ResponseError, Scope};
use idem_proto::idem::v1::StoredResponse;
use tonic_types::FieldViolation;
use uuid::Uuid;

use crate::status::Refusal;
use crate::store::KeyId;

/// What google.protobuf.Duration allows: about ten thousand years.
const SECONDS_MAX: i64 = 315_576_000_000;

/// The violations found so far. A reader that finds one gives `None`, and `finish` turns them into the refusal.
#[derive(Default)]
pub(super) struct Violations {
    found: Vec<FieldViolation>,
}

// === impl Violations ===

impl Violations {
    /// The whole request, if nothing was found.
    pub(super) fn finish<T>(self, request: Option<T>) -> Result<T, Refusal> {
        match request {
            Some(request) if self.found.is_empty() => Ok(request),
            _ => Err(Refusal::Invalid(self.found)),
        }
    }

    /// Notes that `field` is out of bounds.
    pub(super) fn refuse<T>(&mut self, field: &str, why: impl Display) -> Option<T> {
        self.found.push(FieldViolation::new(field, why.to_string()));
        None
    }

    /// The value, or a note that `field` is out of bounds.
    pub(super) fn take<T>(&mut self, field: &str, value: Result<T, impl Display>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(why) => self.refuse(field, why),
        }
    }

    pub(super) fn key_id(&mut self, scope: String, key: String) -> Option<KeyId> {
        let scope = self.take("scope", Scope::new(scope));
        let key = self.take("key", IdempotencyKey::new(key));
        Some(KeyId { scope: scope?, key: key? })
    }

    pub(super) fn uuid(&mut self, field: &str, text: &str) -> Option<Uuid> {
        match Uuid::try_parse(text) {
            Ok(uuid) => Some(uuid),
            Err(_) => self.refuse(field, "must be a UUID, such as 7f8a2c9e-3b1d-4e5f-9a6b-0c1d2e3f4a5b"),
        }
    }

    pub(super) fn operation_id(&mut self, text: &str) -> Option<OperationId> {
        self.uuid("operation_id", text).map(OperationId)
    }

    /// The duration, `default` when absent.
    pub(super) fn duration(
        &mut self,
        field: &str,
        duration: Option<prost_types::Duration>,
        default: Duration,
    ) -> Option<Duration> {
        let Some(prost_types::Duration { seconds, nanos }) = duration else { return Some(default) };
        if seconds < 0 || nanos < 0 {
            return self.refuse(field, "must not be negative");
        }
        match (u64::try_from(seconds), u32::try_from(nanos)) {
            (Ok(whole), Ok(nanos)) if seconds <= SECONDS_MAX && nanos < 1_000_000_000 => {
                Some(Duration::new(whole, nanos))
            }
            _ => self.refuse(field, "is not a valid duration"),
        }
    }

    /// The lease, 60 s when absent.
    pub(super) fn lease(&mut self, field: &str, lease: Option<prost_types::Duration>) -> Option<LeaseDuration> {
        let lease = self.duration(field, lease, LEASE_DEFAULT.get())?;
        self.take(field, LeaseDuration::new(lease))
    }

    pub(super) fn response(&mut self, field: &str, response: StoredResponse) -> Option<Response> {
        let StoredResponse { status, headers, body, resource_id } = response;
        let headers = headers.into_iter().map(|header| (header.name, header.value)).collect();
        self.stored(field, Response::new(status, headers, body, resource_id).and_then(Response::over_http))
    }

    /// An answer that ends an intent.
    pub(super) fn final_response(&mut self, field: &str, response: StoredResponse) -> Option<Response> {
        let response = self.response(field, response)?;
        self.stored(field, response.for_good())
    }

    fn stored(&mut self, field: &str, response: Result<Response, ResponseError>) -> Option<Response> {
        response
            .map_err(|error| {
                let part = match error {
                    ResponseError::Status(_) | ResponseError::Interim(_) | ResponseError::NotFinal(_) => "status",
                    ResponseError::Headers | ResponseError::Header(_) | ResponseError::HeaderName(_) => "headers",
                    ResponseError::Body(_) => "body",
                    ResponseError::ResourceId => "resource_id",
                };
                self.refuse::<()>(&format!("{field}.{part}"), error)
            })
            .ok()
    }
}
