//! Who calls: API keys and the tenants they belong to.
//!
//! Idempotency keys belong to the tenant, never to the API key, so keys can be rotated without losing anything. Several keys
//! may be valid for one tenant at once; expiry is judged at each request, and the file is read again when it changes.

mod file;

use crate::error::{self, catalogue};
use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::Response,
};
use chassis::tls::{CredentialsError, Watched};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, WWW_AUTHENTICATE},
    request::Parts,
};
use idem_core::Scope;
use idem_layer::Problem;
use sha2::{Digest, Sha256};
use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    fmt,
    path::Path,
    time::SystemTime,
};

/// The prefix that makes a tenant a scope, so that other services' scopes never meet ours.
pub(crate) const SCOPE_PREFIX: &str = "rest/";

/// A tenant is part of a scope (200 bytes) and of rows at the orders service.
const TENANT_BYTES_MAX: usize = 100;

/// The API keys that open the gateway: cheap to clone.
#[derive(Clone)]
pub struct ApiKeys {
    keys: Watched<ByDigest>,
}

/// Found by digest, in a table whose order each process draws anew: the time that a look takes says nothing that helps to find a key,
/// and does not grow with the number of keys.
type ByDigest = HashMap<[u8; 32], ApiKey>;

/// One API key, as it is configured.
#[derive(Clone, Debug)]
pub struct ApiKeyEntry {
    /// The integration that it belongs to.
    pub tenant: String,
    /// What is known of the key.
    pub secret: ApiKeySecret,
    /// Whether it may change the catalogue.
    pub operator: bool,
    /// Until when it is valid; None for ever.
    pub expires_at: Option<SystemTime>,
}

/// What is known of an API key. Its `Debug` shows nothing.
#[derive(Clone)]
pub enum ApiKeySecret {
    /// The key itself.
    Key(String),
    /// The SHA-256 of the key.
    Sha256([u8; 32]),
}

/// An `--api-keys` file, or a list of entries, that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The file could not be read, or does not say what it must.
    #[error(transparent)]
    File(#[from] CredentialsError),
    /// An entry given in code makes no sense.
    #[error("the API keys cannot be used: {0}")]
    Entry(String),
}

/// Who sent a request: in the extensions of every request under `/v1`.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    pub(crate) tenant: Tenant,
    pub(crate) is_operator: bool,
}

/// The name of an integration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tenant {
    scope: Scope,
}

struct ApiKey {
    /// Its place in the list.
    place: usize,
    expires_at: Option<SystemTime>,
    principal: Principal,
}

/// Why a caller is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unauthenticated {
    Missing,
    Malformed,
    Unknown,
    Expired,
}

/// Answers 403 unless the caller is an operator. Goes inside [`authenticate`].
pub(crate) async fn require_operator(principal: Principal, request: Request, next: Next) -> Response {
    if principal.is_operator {
        return next.run(request).await;
    }
    error::respond(&catalogue::FORBIDDEN.problem("only operator API keys may change ticket types"))
}

/// Puts the [`Principal`] and its [`Scope`] into the request's extensions, or answers 401.
pub(crate) async fn authenticate(State(keys): State<ApiKeys>, mut request: Request, next: Next) -> Response {
    match keys.authenticate_at(request.headers(), chassis::clock::wall) {
        Ok(principal) => {
            request.extensions_mut().insert(principal.tenant.scope.clone());
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(why) => error::respond(&why.problem()),
    }
}

// === impl ApiKeys ===

impl ApiKeys {
    /// Reads an `--api-keys` file, now and whenever it changes.
    pub fn load(path: &Path) -> Result<Self, ApiKeyError> {
        let read = |contents: &[Vec<u8>]| {
            let text = contents.first().map_or(&[][..], Vec::as_slice);
            file::parse(text).and_then(build)
        };
        Ok(Self { keys: Watched::open("the API keys", vec![path.to_owned()], read)? })
    }

    /// Looks at the file now, instead of within a second.
    #[cfg(test)]
    fn look(&self) {
        self.keys.look();
    }

    /// Takes keys given in code.
    pub fn from_entries(entries: impl IntoIterator<Item = ApiKeyEntry>) -> Result<Self, ApiKeyError> {
        let keys = build(entries.into_iter().collect()).map_err(ApiKeyError::Entry)?;
        Ok(Self { keys: Watched::fixed(keys) })
    }

    fn authenticate_at(
        &self,
        headers: &HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Principal, Unauthenticated> {
        let key = bearer(headers)?;
        let keys = self.keys.current();
        let found = keys.get(&<[u8; 32]>::from(Sha256::digest(key))).ok_or(Unauthenticated::Unknown)?;
        match found.expires_at {
            Some(expires_at) if expires_at <= now() => Err(Unauthenticated::Expired),
            _ => Ok(found.principal.clone()),
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys").field("keys", &self.keys.current().len()).finish()
    }
}

fn build(entries: Vec<ApiKeyEntry>) -> Result<ByDigest, String> {
    if entries.is_empty() {
        return Err("there is no entry, so nobody could call".to_owned());
    }
    let mut keys = ByDigest::with_capacity(entries.len());
    for (place, entry) in entries.into_iter().enumerate() {
        // Not the tenant's name: in a file whose members were mixed up it may be a key.
        let name = format!("entry {}", place + 1);
        let (digest, key) = ApiKey::new(place, entry).map_err(|why| format!("{name}: {why}"))?;
        match keys.entry(digest) {
            Entry::Vacant(vacant) => drop(vacant.insert(key)),
            Entry::Occupied(twin) => {
                return Err(format!("{name}: its key is that of entry {} too", twin.get().place + 1));
            }
        }
    }
    Ok(keys)
}

fn bearer(headers: &HeaderMap) -> Result<&[u8], Unauthenticated> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Unauthenticated::Missing)?;
    if values.next().is_some() {
        return Err(Unauthenticated::Malformed);
    }
    let (scheme, key) = value.as_bytes().split_at_checked(7).ok_or(Unauthenticated::Malformed)?;
    let key = key.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || key.is_empty() {
        return Err(Unauthenticated::Malformed);
    }
    Ok(key)
}

// === impl ApiKey ===

impl ApiKey {
    /// With the digest by which it is found.
    fn new(place: usize, entry: ApiKeyEntry) -> Result<([u8; 32], Self), String> {
        let digest = match &entry.secret {
            ApiKeySecret::Sha256(digest) => *digest,
            // Anything else could never arrive in a header.
            ApiKeySecret::Key(key) if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) => {
                return Err("key must be printable ASCII without spaces".to_owned());
            }
            ApiKeySecret::Key(key) => Sha256::digest(key).into(),
        };
        let principal = Principal { tenant: Tenant::new(&entry.tenant)?, is_operator: entry.operator };
        Ok((digest, Self { place, expires_at: entry.expires_at, principal }))
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeySecret(…)")
    }
}

// === impl Tenant ===

impl Tenant {
    fn new(name: &str) -> Result<Self, String> {
        let fits = (1..=TENANT_BYTES_MAX).contains(&name.len())
            && name.trim() == name
            && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '*'));
        let scope = Scope::new(format!("{SCOPE_PREFIX}{name}")).ok().filter(|_| fits);
        scope.map(|scope| Self { scope }).ok_or_else(|| {
            format!(
                "tenant must be 1 to {TENANT_BYTES_MAX} bytes without control characters, `/`, `*` or spaces at its ends"
            )
        })
    }

    /// The name itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.scope.as_str()[SCOPE_PREFIX.len()..]
    }

    /// The scope of its idempotency keys.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }
}

// === impl Principal ===

impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Principal>().expect("every route under /v1 is behind `authenticate`").clone())
    }
}

// === impl Unauthenticated ===

impl Unauthenticated {
    fn problem(self) -> Problem {
        let problem = catalogue::UNAUTHORIZED.problem(self.detail()).reason(self.reason());
        problem.header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing_api_key",
            Self::Malformed => "malformed_authorization",
            Self::Unknown => "unknown_api_key",
            Self::Expired => "expired_api_key",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Missing => "send `Authorization: Bearer <API key>`",
            Self::Malformed => "the Authorization header is not one `Bearer <API key>`",
            Self::Unknown => "the API key is not known",
            Self::Expired => "the API key has expired",
        }
    }
}

#[cfg(test)]
mod tests;
