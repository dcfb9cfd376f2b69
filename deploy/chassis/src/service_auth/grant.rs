//! What a caller may do.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// Who calls, found in the extensions of every request that passed the layer. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Caller {
    grant: Arc<Grant>,
}

#[derive(PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) service: String,
    pub(super) scopes: Vec<ScopePattern>,
    pub(super) rpcs: Vec<RpcPattern>,
    pub(super) anonymous: bool,
}

/// An exact scope, or a prefix that ended in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScopePattern {
    Exact(String),
    Prefix(String),
}

/// `*`, `Reserve`, `AdminService/*`, `IdempotencyService/Reserve` or the same with the package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcPattern {
    /// None: of any service.
    service: Option<String>,
    /// None: any method.
    method: Option<String>,
}

/// Of the admin service, what every service with keys of its own needs, and is shown only its own: what its crashes left behind, and
/// how many keys it has open.
const NO_ADMINISTRATION: [&str; 2] = ["ListStale", "CountLive"];

static ANONYMOUS: LazyLock<Arc<Grant>> = LazyLock::new(|| {
    let scopes = vec![ScopePattern::Prefix(String::new())];
    Arc::new(Grant { service: "anonymous".to_owned(), scopes, rpcs: Vec::new(), anonymous: true })
});

// === impl Grant ===

impl Grant {
    /// What a certificate opens where no file says more: every scope, and everything but what administrators do.
    pub(super) fn of_a_service(name: &str) -> Self {
        let scopes = vec![ScopePattern::Prefix(String::new())];
        let service = |name: &str| RpcPattern { service: Some(name.to_owned()), method: None };
        let admin = |method: &str| RpcPattern { method: Some(method.to_owned()), ..service("AdminService") };
        let rpcs = ["IdempotencyService", "OrdersService"].map(service).into_iter();
        let rpcs = rpcs.chain(NO_ADMINISTRATION.map(admin)).collect();
        Self { service: name.to_owned(), scopes, rpcs, anonymous: false }
    }

    /// Known, and allowed nothing.
    pub(super) fn of_a_stranger(name: &str) -> Self {
        Self { service: name.to_owned(), scopes: Vec::new(), rpcs: Vec::new(), anonymous: false }
    }
}

// === impl Caller ===

impl Caller {
    /// Whoever calls a server that asks for no token: may use every scope and RPC.
    pub fn anonymous() -> Self {
        Self { grant: ANONYMOUS.clone() }
    }

    pub(super) fn of(grant: Arc<Grant>) -> Self {
        Self { grant }
    }

    /// Who sent this request, as noted by the layer; anonymous on a server without the layer.
    pub fn from_request<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(Self::anonymous)
    }

    /// The name of the calling service.
    pub fn service(&self) -> &str {
        &self.grant.service
    }

    /// Whether nobody asked who it is.
    pub fn is_anonymous(&self) -> bool {
        self.grant.anonymous
    }

    /// Whether the caller may read and change keys of `scope`.
    pub fn may_use_scope(&self, scope: &str) -> bool {
        self.grant.scopes.iter().any(|pattern| pattern.covers(scope))
    }

    /// Whether the caller may use every scope that begins with `prefix`.
    pub fn may_use_scopes_under(&self, prefix: &str) -> bool {
        self.grant.scopes.iter().any(|pattern| matches!(pattern, ScopePattern::Prefix(own) if prefix.starts_with(own)))
    }

    /// The scopes that the caller may use, each exact or a prefix ending in `*`.
    pub fn scopes(&self) -> impl Iterator<Item = String> + '_ {
        self.grant.scopes.iter().map(ToString::to_string)
    }

    /// Whether the caller may call `path`, such as `/idem.v1.IdempotencyService/Reserve`.
    pub fn may_call(&self, path: &str) -> bool {
        let (service, method) = split_path(path);
        self.grant.anonymous || self.grant.rpcs.iter().any(|pattern| pattern.covers(service, method))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.grant.service).finish()
    }
}

/// Splits `/idem.v1.IdempotencyService/Reserve` into service and method.
fn split_path(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').rsplit_once('/').unwrap_or(("", path))
}

// === impl ScopePattern ===

impl ScopePattern {
    /// What is wrong is said without the text, which may be a token that stands in the wrong place.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (exact, prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err("is empty");
        }
        if exact.contains('*') {
            return Err("has a `*` before its end");
        }
        Ok(if prefix { Self::Prefix(exact.to_owned()) } else { Self::Exact(exact.to_owned()) })
    }

    fn covers(&self, scope: &str) -> bool {
        match self {
            Self::Exact(exact) => scope == exact,
            Self::Prefix(prefix) => scope.starts_with(prefix.as_str()),
        }
    }
}

impl fmt::Display for ScopePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(exact) => f.write_str(exact),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

// === impl RpcPattern ===

impl RpcPattern {
    /// As for scopes.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let path = text.strip_prefix('/').unwrap_or(text);
        let (service, method) = match path.split_once('/') {
            Some((service, method)) => (Some(service), method),
            None => (None, path),
        };
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
        if !service.is_none_or(is_name) || !(method == "*" || is_name(method) && !method.contains('.')) {
            return Err("is none of *, Method, Service/Method, package.Service/Method, Service/*");
        }
        Ok(Self { service: service.map(str::to_owned), method: (method != "*").then(|| method.to_owned()) })
    }

    fn covers(&self, service: &str, method: &str) -> bool {
        let service_fits = self.service.as_deref().is_none_or(|own| {
            // The name with its package, or the name alone.
            own == service || service.rsplit_once('.').is_some_and(|(_, name)| own == name)
        });
        service_fits && self.method.as_deref().is_none_or(|own| own == method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(scopes: &[&str], rpcs: &[&str]) -> Caller {
        Caller::of(Arc::new(Grant {
            service: "test".to_owned(),
            scopes: scopes.iter().map(|text| ScopePattern::parse(text).unwrap()).collect(),
            rpcs: rpcs.iter().map(|text| RpcPattern::parse(text).unwrap()).collect(),
            anonymous: false,
        }))
    }

    #[test]
    fn rpc_patterns_cover_what_they_say() {
        const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";
        const LIST: &str = "/idem.v1.AdminService/List";
        let table = [
            ("*", true, true),
            ("Reserve", true, false),
            ("List", false, true),
            ("idem.v1.IdempotencyService/Reserve", true, false),
            ("/idem.v1.IdempotencyService/Reserve", true, false),
            ("IdempotencyService/Reserve", true, false),
            ("IdempotencyService/*", true, false),
            ("idem.v1.AdminService/*", false, true),
            ("AdminService/*", false, true),
            ("Service/*", false, false),
            ("orders.v1.IdempotencyService/*", false, false),
            ("Res", false, false),
        ];
        for (pattern, reserve, list) in table {
            let caller = caller(&[], &[pattern]);
            assert_eq!((caller.may_call(RESERVE), caller.may_call(LIST)), (reserve, list), "{pattern}");
        }
        let by_certificate = Caller::of(Arc::new(Grant::of_a_service("gateway.internal")));
        assert!(by_certificate.may_call(RESERVE) && by_certificate.may_call("/orders.v1.OrdersService/Lookup"));
        assert!(by_certificate.may_call("/idem.v1.AdminService/ListStale") && !by_certificate.may_call(LIST));
        assert!(Caller::anonymous().may_call(LIST));
        assert!(!caller(&["*"], &[]).may_call(RESERVE));
        assert!(!caller(&["*"], &["*"]).may_use_scopes_under("") || caller(&["*"], &["*"]).may_use_scope(""));
    }

    #[test]
    fn patterns_with_a_star_elsewhere_are_refused() {
        for bad in ["", "/", "Res*", "*/Reserve", "A/B/C", "A/", "Idempotency Service/Reserve", "idem.v1.Reserve"] {
            assert!(RpcPattern::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "rest/*/x", "**"] {
            assert!(ScopePattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scopes_are_exact_or_a_prefix() {
        let caller = caller(&["rest/*", "mail"], &["*"]);
        for (scope, allowed) in
            [("rest/a", true), ("rest/", true), ("rest", false), ("mail", true), ("mail/x", false), ("", false)]
        {
            assert_eq!(caller.may_use_scope(scope), allowed, "{scope}");
        }
        for (prefix, allowed) in [("rest/", true), ("rest/a", true), ("res", false), ("", false), ("mail", false)] {
            assert_eq!(caller.may_use_scopes_under(prefix), allowed, "{prefix}");
        }
        assert_eq!(caller.scopes().collect::<Vec<_>>(), ["rest/*", "mail"]);
    }
}
