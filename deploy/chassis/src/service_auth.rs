//! Who calls a service, and what it may ask.
//!
//! Callers are services, known by a bearer token or by the name in their client certificate. A file lists the SHA-256 of each token, or
//! the name, with the scopes and RPCs that it opens; several may be valid for one service at once, so that they can be rotated. Expiry is
//! judged at each call, and the file is read again when it changes.

mod file;
mod grant;
mod layer;

pub use credentials::CredentialsError as ServiceAuthError;
pub use grant::Caller;
pub use layer::{ResponseFuture, ServiceAuthLayer, ServiceAuthService};
pub(crate) use layer::{refuse, refuse_with};

use crate::clock;
use credentials::{PeerNames, Watched};
use grant::Grant;
use sha2::{Digest, Sha256};
use std::{fmt, path::Path, sync::Arc, time::SystemTime};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// What opens a server: cheap to clone. Without any of it, everybody may do everything.
#[derive(Clone)]
pub struct ServiceAuth {
    grants: Option<Watched<Grants>>,
    /// Callers must show a certificate.
    certificates: bool,
}

/// What a file grants, by how a caller proves who it is.
#[derive(Default)]
struct Grants {
    tokens: Vec<([u8; 32], CallerGrant)>,
    certificates: Vec<(String, CallerGrant)>,
}

/// One entry of the file.
struct CallerGrant {
    proof: Proof,
    expires_at: Option<SystemTime>,
    grant: Arc<Grant>,
}

#[derive(PartialEq, Eq)]
enum Proof {
    /// The SHA-256 of a bearer token.
    Token([u8; 32]),
    /// A name in a certificate.
    Certificate(String),
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
    /// The grant of the certificate's name was good until its `expiresAt`.
    ExpiredGrant,
    /// The server asks for a certificate, and the connection has none.
    NoCertificate,
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
            Self::ExpiredGrant => "the grant of this client certificate has expired",
            Self::NoCertificate => "a client certificate is required",
        }
    }
}

// === impl ServiceAuth ===

impl ServiceAuth {
    /// No authentication: every caller is [`Caller::anonymous`]. See [`check_exposure`](crate::listen::check_exposure) for
    /// where a server may listen so.
    pub fn open() -> Self {
        Self { grants: None, certificates: false }
    }

    /// Reads a `--service-tokens` file, now and whenever it changes.
    pub fn load(path: &Path) -> Result<Self, ServiceAuthError> {
        let read = |contents: &[Vec<u8>]| file::parse(contents.first().map_or(&[], Vec::as_slice));
        let grants = Watched::open("the service tokens", vec![path.to_owned()], read)?;
        Ok(Self { grants: Some(grants), certificates: false })
    }

    /// What a server's flags say: a `--service-tokens` file, and whether `--tls-client-ca` makes callers show a certificate.
    pub fn from_flags(tokens: Option<&Path>, certificates: bool) -> Result<Self, ServiceAuthError> {
        let auth = tokens.map_or_else(|| Ok(Self::open()), Self::load)?;
        let auth = Self { certificates, ..auth };
        if let entries @ 1.. = auth.idle_entries() {
            tracing::warn!(
                entries,
                "entries of --service-tokens name a certificate, and without --tls-client-ca nobody is asked for one"
            );
        }
        Ok(auth)
    }

    /// Entries that can match nobody: they name a certificate, and no caller is asked for one.
    fn idle_entries(&self) -> usize {
        let grants = self.grants.as_ref().filter(|_| !self.certificates);
        grants.map_or(0, |grants| grants.current().certificates.len())
    }

    /// Whether callers must prove who they are.
    pub fn is_authenticated(&self) -> bool {
        self.grants.is_some() || self.certificates
    }

    /// Whose token is in these headers, now. For ports where nobody shows a certificate.
    pub fn authenticate(&self, headers: &http::HeaderMap) -> Result<Caller, Unauthenticated> {
        if !self.is_authenticated() {
            return Ok(Caller::anonymous());
        }
        self.by_token(headers, clock::wall)
    }

    /// Who calls with these headers over a connection with these names, now.
    ///
    /// A server that asks for certificates serves nobody without one. A token beside it is judged instead of the certificate's name, where
    /// a file of tokens was given.
    pub fn authenticate_call(
        &self,
        headers: &http::HeaderMap,
        names: Option<&PeerNames>,
    ) -> Result<Caller, Unauthenticated> {
        match names {
            _ if !self.is_authenticated() => Ok(Caller::anonymous()),
            None if self.certificates => Err(Unauthenticated::NoCertificate),
            Some(names) if self.grants.is_none() || !headers.contains_key(http::header::AUTHORIZATION) => {
                self.by_certificate(names, clock::wall)
            }
            _ => self.by_token(headers, clock::wall),
        }
    }

    /// Looks at the file now, instead of within a second.
    pub fn look(&self) {
        self.grants.iter().for_each(Watched::look);
    }

    /// A layer for gRPC servers; `error_domain` is the domain of the `ErrorInfo` in refusals.
    pub fn layer(&self, error_domain: &'static str) -> ServiceAuthLayer {
        ServiceAuthLayer::new(self.clone(), error_domain)
    }

    fn by_token(&self, headers: &http::HeaderMap, now: impl FnOnce() -> SystemTime) -> Result<Caller, Unauthenticated> {
        let token = bearer_token(headers)?;
        let grants = self.grants.as_ref().ok_or(Unauthenticated::Unknown)?.current();
        let place = find(&grants.tokens, &Sha256::digest(token).into()).ok_or(Unauthenticated::Unknown)?;
        grants.tokens[place].1.caller(now).ok_or(Unauthenticated::Expired)
    }

    /// The first entry that names the certificate counts. A name that no entry knows may nothing; without a file, every name of the
    /// authority that was given may what services do.
    fn by_certificate(&self, names: &PeerNames, now: impl FnOnce() -> SystemTime) -> Result<Caller, Unauthenticated> {
        let Some(grants) = &self.grants else { return Ok(Caller::of(Grant::of_a_service(names.first()).into())) };
        let grants = grants.current();
        match grants.certificates.iter().find(|(name, _)| names.contains(name)) {
            Some((_, found)) => found.caller(now).ok_or(Unauthenticated::ExpiredGrant),
            None => Ok(Caller::of(Grant::of_a_stranger(names.first()).into())),
        }
    }
}

impl CallerGrant {
    /// None once it has expired.
    fn caller(&self, now: impl FnOnce() -> SystemTime) -> Option<Caller> {
        let is_over = self.expires_at.is_some_and(|expires_at| expires_at <= now());
        (!is_over).then(|| Caller::of(self.grant.clone()))
    }
}

impl From<Vec<CallerGrant>> for Grants {
    fn from(entries: Vec<CallerGrant>) -> Self {
        let mut grants = Self::default();
        for entry in entries {
            match &entry.proof {
                Proof::Token(digest) => grants.tokens.push((*digest, entry)),
                Proof::Certificate(name) => grants.certificates.push((name.clone(), entry)),
            }
        }
        grants
    }
}

impl fmt::Debug for ServiceAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, certificates) = (self.grants.is_some(), self.certificates);
        f.debug_struct("ServiceAuth").field("tokens", &tokens).field("certificates", &certificates).finish()
    }
}

/// The place of `digest`. Looks at every entry whatever it finds, so that the time taken tells nothing about the tokens.
fn find(grants: &[([u8; 32], CallerGrant)], digest: &[u8; 32]) -> Option<usize> {
    let (mut found, mut place) = (Choice::from(0), 0_u64);
    for (candidate, (own, _)) in (0_u64..).zip(grants) {
        let equal = own.ct_eq(digest);
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
        ServiceAuth { grants: Some(Watched::fixed(file::parse(TOKENS.as_bytes()).unwrap())), certificates: false }
    }

    fn headers(authorization: &[&str]) -> HeaderMap {
        authorization.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
    }

    fn ask(authorization: &[&str], now: &str) -> Result<String, Unauthenticated> {
        let now = clock::parse_rfc3339(now).unwrap();
        auth().by_token(&headers(authorization), || now).map(|caller| caller.service().to_owned())
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
            auth().by_token(&headers(&["Bearer new"]), || SystemTime::UNIX_EPOCH + Duration::ZERO)
        );
        assert!(!shown.contains("new"), "{shown}");
    }

    fn names(names: &[&str]) -> PeerNames {
        PeerNames::new(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn certificate_names_its_service_and_a_name_without_an_entry_may_nothing() {
        const ENTRIES: &str = r#"[
            {"service": "gateway", "certificate": "gateway.internal", "scopes": ["rest/*"], "rpcs": ["*"]},
            {"service": "mailer", "certificate": "spiffe://shop/mailer", "scopes": ["mail"], "rpcs": ["Reserve"]},
            {"service": "former", "certificate": "former", "scopes": ["*"], "rpcs": ["*"], "expiresAt": "2020-01-01T00:00:00Z"},
            {"service": "script", "token": "t", "scopes": ["script"], "rpcs": ["Get"]}
        ]"#;
        let auth =
            ServiceAuth { grants: Some(Watched::fixed(file::parse(ENTRIES.as_bytes()).unwrap())), certificates: true };
        let call = |own: Option<&[&str]>, authorization: &[&str]| {
            auth.authenticate_call(&headers(authorization), own.map(names).as_ref()).map(|it| it.service().to_owned())
        };
        let ok = |name: &str| Ok(name.to_owned());
        assert_eq!(call(Some(&["x", "Gateway.Internal"]), &[]), ok("gateway"));
        assert_eq!(call(Some(&["spiffe://shop/mailer"]), &[]), ok("mailer"));
        assert_eq!(call(Some(&["former"]), &[]), Err(Unauthenticated::ExpiredGrant));
        assert_eq!(call(Some(&["gateway.internal"]), &["Bearer t"]), ok("script"));
        assert_eq!(call(Some(&["gateway.internal"]), &["Bearer wrong"]), Err(Unauthenticated::Unknown));
        assert_eq!(call(None, &["Bearer t"]), Err(Unauthenticated::NoCertificate));
        assert_eq!(call(None, &[]), Err(Unauthenticated::NoCertificate));
        let stranger =
            auth.authenticate_call(&headers(&[]), Some(&names(&["stranger", "spiffe://shop/mailer/x"]))).unwrap();
        assert!(!stranger.may_call("/idem.v1.IdempotencyService/Reserve") && !stranger.may_use_scope("mail"));
    }

    #[test]
    fn entries_that_can_match_nobody_are_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = |proof: &str| format!(r#"{{"service": "a", "{proof}": "x", "scopes": ["*"], "rpcs": ["*"]}}"#);
        std::fs::write(file.path(), format!("[{},{}]", entry("certificate"), entry("token"))).unwrap();
        let idle = |certificates| ServiceAuth::from_flags(Some(file.path()), certificates).unwrap().idle_entries();
        assert_eq!((idle(false), idle(true)), (1, 0));
    }

    #[test]
    fn without_a_file_every_certificate_may_what_services_do() {
        let auth = ServiceAuth::from_flags(None, true).unwrap();
        assert!(auth.is_authenticated());
        let caller = auth.authenticate_call(&headers(&["Bearer ignored"]), Some(&names(&["gateway"]))).unwrap();
        assert!(!caller.is_anonymous() && caller.may_use_scope("rest/a"));
        assert!(
            caller.may_call("/idem.v1.IdempotencyService/Reserve") && caller.may_call("/orders.v1.OrdersService/Pay")
        );
        assert!(
            caller.may_call("/idem.v1.AdminService/ListStale") && !caller.may_call("/idem.v1.AdminService/Resolve")
        );
        // The console's port has no certificates.
        assert_eq!(auth.authenticate(&HeaderMap::new()).unwrap_err(), Unauthenticated::Missing);
        assert_eq!(auth.authenticate(&headers(&["Bearer x"])).unwrap_err(), Unauthenticated::Unknown);
    }

    #[test]
    fn rotated_tokens_are_used_without_a_restart_and_a_broken_file_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = |token: &str| format!(r#"{{"service": "a", "token": "{token}", "scopes": ["*"], "rpcs": ["*"]}}"#);
        std::fs::write(file.path(), format!("[{}]", entry("one"))).unwrap();
        let auth = ServiceAuth::load(file.path()).unwrap();
        let good = || ["one", "two"].map(|it| auth.authenticate(&headers(&[&format!("Bearer {it}")])).is_ok());
        assert_eq!(good(), [true, false]);
        for (content, expected) in [
            (format!("[{},{}]", entry("one"), entry("two")), [true, true]),
            ("[".to_owned(), [true, true]),
            ("[]".to_owned(), [true, true]),
            (format!("[{}]", entry("two")), [false, true]),
        ] {
            std::fs::write(file.path(), &content).unwrap();
            auth.look();
            assert_eq!(good(), expected, "{content}");
        }
    }
}
