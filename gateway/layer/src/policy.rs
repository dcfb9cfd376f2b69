//! What a route says about keys.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use http::request::Parts;

use crate::Problem;

type Validator = Arc<dyn Fn(&Parts, &Bytes) -> Result<(), Problem> + Send + Sync>;

/// What a route does with `Idempotency-Key`, and what it asks of a body.
#[derive(Clone)]
pub struct RoutePolicy {
    pub(crate) route: Cow<'static, str>,
    pub(crate) key: KeyPolicy,
    pub(crate) is_body_read: bool,
    validator: Option<Validator>,
}

/// What a route does with `Idempotency-Key`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyPolicy {
    Required,
    Optional,
    Ignored,
}

impl RoutePolicy {
    /// A request without a key is refused. `route` is its name in metrics, for example `POST /v1/orders`.
    pub fn required(route: impl Into<Cow<'static, str>>) -> Self {
        Self { route: route.into(), key: KeyPolicy::Required, is_body_read: true, validator: None }
    }

    /// A key that is sent is honoured; without one the request is executed as it is.
    pub fn optional(route: impl Into<Cow<'static, str>>) -> Self {
        Self { key: KeyPolicy::Optional, ..Self::required(route) }
    }

    /// A key that is sent is ignored; the body is read, decoded and checked as on the other routes.
    pub fn unkeyed(route: impl Into<Cow<'static, str>>) -> Self {
        Self { key: KeyPolicy::Ignored, ..Self::required(route) }
    }

    /// The layer does nothing: the body passes as it comes.
    pub fn ignored(route: impl Into<Cow<'static, str>>) -> Self {
        Self { is_body_read: false, ..Self::unkeyed(route) }
    }

    /// Checks a request before its key is reserved, so that one that can never succeed leaves nothing behind. The body is decoded
    /// and is JSON, or empty. A repeat whose answer this process remembers is not checked again: the check must depend on what the
    /// fingerprint covers (method, path, query, body) and on nothing else.
    #[must_use]
    pub fn validate(self, check: impl Fn(&Parts, &Bytes) -> Result<(), Problem> + Send + Sync + 'static) -> Self {
        Self { validator: Some(Arc::new(check)), ..self }
    }

    pub(crate) fn check(&self, parts: &Parts, body: &Bytes) -> Result<(), Problem> {
        self.validator.as_ref().map_or(Ok(()), |check| check(parts, body))
    }
}

impl fmt::Debug for RoutePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutePolicy").field("route", &self.route).field("key", &self.key).finish_non_exhaustive()
    }
}
