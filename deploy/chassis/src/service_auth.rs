//! Who calls a service, and what it may ask.
//!
//! Callers are services, known by a bearer token. A file lists the SHA-256 of each token with the scopes and RPCs that it
//! opens; several tokens may be valid for one service at once, so that they can be rotated. Expiry is judged at each call.

mod file;
mod grant;
mod layer;

pub use file::ServiceAuthError;
pub use grant::Caller;
pub use layer::{ResponseFuture, ServiceAuthLayer, ServiceAuthService};
pub(crate) use layer::{refuse, refuse_with};

use crate::clock;
use grant::Grant;
use sha2::{Digest, Sha256};
use std::{fmt, path::Path, sync::Arc, time::SystemTime};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The service tokens that open a server: cheap to clone.
#[derive(Clone)]
pub struct ServiceAuth {
    /// None: no authentication is configured, everybody may do everything.
    grants: Option<Arc<[TokenGrant]>>,
}

struct TokenGrant {
    digest: [u8; 32],
    expires_at: Option<SystemTime>,
    grant: Arc<Grant>,
}

/// Why a caller is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub enum Unauthenticated {
    /// No `authorization` header.
    Missing,
    /// Two `authorization` headers, or one that is no bearer token.
    Malformed,
    /// Nobody has this token.
    Unknown,
    /// The token was good until its `expiresAt`.
    Expired,
}

// === impl Unauthenticated ===

impl Unauthenticated {
    /// The sentence for the caller.
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => "a service token is required: send `authorization: Bearer <token>`",
            Self::Malformed => "the authorization metadata is not `Bearer <token>`",
            Self::Unknown => "the service token is not known",
            Self::Expired => "the service token has expired",
        }
    }
}

// === impl ServiceAuth ===

impl ServiceAuth {
    /// No authentication: every caller is [`Caller::anonymous`]. See [`check_exposure`](crate::listen::check_exposure) for
    /// where a server may listen so.
    pub fn open() -> Self {
        Self { grants: None }
    }

    /// Reads a `--service-tokens` file.
    pub fn load(path: &Path) -> Result<Self, ServiceAuthError> {
        file::load(path).map(|grants| Self { grants: Some(grants.into()) })
    }

    /// Whether callers must show a token.
    pub fn is_authenticated(&self) -> bool {
        self.grants.is_some()
    }

    /// Who sent these headers, now.
    pub fn authenticate(&self, headers: &http::HeaderMap) -> Result<Caller, Unauthenticated> {
        self.authenticate_at(headers, clock::wall)
    }

    /// A layer for gRPC servers; `error_domain` is the domain of the `ErrorInfo` in refusals.
    pub fn layer(&self, error_domain: &'static str) -> ServiceAuthLayer {
        ServiceAuthLayer::new(self.clone(), error_domain)
    }

    fn authenticate_at(
        &self,
        headers: &http::HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Caller, Unauthenticated> {
        let Some(grants) = &self.grants else {
            return Ok(Caller::anonymous());
        };
        let token = bearer_token(headers)?;
        let found = &grants[find(grants, &Sha256::digest(token).into()).ok_or(Unauthenticated::Unknown)?];
        match found.expires_at {
            Some(expires_at) if expires_at <= now() => Err(Unauthenticated::Expired),
            _ => Ok(Caller::of(found.grant.clone())),
        }
    }
}

impl fmt::Debug for ServiceAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.grants.as_ref().map(|grants| grants.len());
        f.debug_struct("ServiceAuth").field("tokens", &tokens).finish()
    }
}

/// The place of `digest`. Looks at every entry whatever it finds, so that the time taken tells nothing about the tokens.
fn find(grants: &[TokenGrant], digest: &[u8; 32]) -> Option<usize> {
    let (mut found, mut place) = (Choice::from(0), 0_u64);
    for (candidate, grant) in (0_u64..).zip(grants) {
        let equal = grant.digest.ct_eq(digest);
        place.conditional_assign(&candidate, equal);
        found |= equal;
    }
    bool::from(found).then_some(place as usize)
}

fn bearer_token(headers: &http::HeaderMap) -> Result<&[u8], Unauthenticated> {
    let mut values = headers.get_all(http::header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Unauthenticated::Missing)?;
    if values.next().is_some() {
        return Err(Unauthenticated::Malformed);
    }
    let (scheme, token) = value.as_bytes().split_at_checked(7).ok_or(Unauthenticated::Malformed)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(Unauthenticated::Malformed);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
    use std::time::Duration;

    const TOKENS: &str = r#"[
        {"service": "gateway", "token": "old", "scopes": ["rest/*"], "rpcs": ["*"], "expiresAt": "2030-01-01T00:00:00Z"},
        {"service": "gateway", "token": "new", "scopes": ["rest/*"], "rpcs": ["*"]},
        {"service": "mailer", "sha256": "2BD806C97F0E00AF1A1FC3328FA763A9269723C8DB8FAC4F93AF71DB186D6E90",
         "scopes": ["mail"], "rpcs": ["Reserve"]}
    ]"#;

    fn auth() -> ServiceAuth {
        ServiceAuth { grants: Some(file::parse(TOKENS).unwrap().into()) }
    }

    fn headers(authorization: &[&str]) -> HeaderMap {
        authorization.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
    }

    fn ask(authorization: &[&str], now: &str) -> Result<String, Unauthenticated> {
        let now = clock::parse_rfc3339(now).unwrap();
        auth().authenticate_at(&headers(authorization), || now).map(|caller| caller.service().to_owned())
    }

    #[test]
    fn token_names_its_service() {
        let now = "2029-06-01T00:00:00Z";
        let table: [(&[&str], Result<&str, Unauthenticated>); 11] = [
            (&["Bearer old"], Ok("gateway")),
            (&["bearer new"], Ok("gateway")),
            // given by its digest, in capitals
            (&["Bearer b"], Err(Unauthenticated::Unknown)),
            (&["Bearer alice"], Ok("mailer")),
            (&["Bearer  new "], Ok("gateway")),
            (&[], Err(Unauthenticated::Missing)),
            (&["Bearer new", "Bearer new"], Err(Unauthenticated::Malformed)),
            (&["Basic new"], Err(Unauthenticated::Malformed)),
            (&["Bearer "], Err(Unauthenticated::Malformed)),
            (&["new"], Err(Unauthenticated::Malformed)),
            (&["Bearer newer"], Err(Unauthenticated::Unknown)),
        ];
        for (authorization, expected) in table {
            assert_eq!(ask(authorization, now), expected.map(str::to_owned), "{authorization:?}");
        }
    }

    #[test]
    fn expiry_is_judged_at_each_call_and_leaves_the_other_token_valid() {
        assert_eq!(ask(&["Bearer old"], "2029-12-31T23:59:59.999Z").as_deref(), Ok("gateway"));
        assert_eq!(ask(&["Bearer old"], "2030-01-01T00:00:00Z"), Err(Unauthenticated::Expired));
        assert_eq!(ask(&["Bearer new"], "2030-01-01T00:00:00Z").as_deref(), Ok("gateway"));
    }

    #[test]
    fn open_server_knows_nobody_and_allows_everything() {
        let caller = ServiceAuth::open().authenticate(&HeaderMap::new()).unwrap();
        assert!(caller.is_anonymous() && caller.may_use_scope("rest/a") && caller.may_call("/x.Y/Z"));
        assert!(!ServiceAuth::open().is_authenticated());
    }

    #[test]
    fn nothing_of_a_token_is_shown() {
        let shown = format!(
            "{:?} {:?}",
            auth(),
            auth().authenticate_at(&headers(&["Bearer new"]), || SystemTime::UNIX_EPOCH + Duration::ZERO)
        );
        assert!(!shown.contains("new"), "{shown}");
    }
}
