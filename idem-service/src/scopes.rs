//! What a caller may see: the scopes that it asks for, cut down to those of its grant.

use chassis::service_auth::Caller;

use crate::status::Refusal;
use crate::store::ScopePattern;

/// The part of `requested` that the caller's grant covers; every scope of the caller without a request. Refused when the
/// caller asks for scopes none of which are its own.
pub(crate) fn visible(caller: &Caller, requested: Option<ScopePattern>) -> Result<Vec<ScopePattern>, Refusal> {
    let own = caller.scopes().map(|text| pattern(&text));
    let Some(requested) = requested else { return Ok(own.collect()) };
    let common: Vec<_> = own.filter_map(|own| intersection(&own, &requested)).collect();
    if common.is_empty() { Err(Refusal::ScopeNotGranted) } else { Ok(common) }
}

fn pattern(text: &str) -> ScopePattern {
    match text.strip_suffix('*') {
        Some(prefix) => ScopePattern::Prefix(prefix.to_owned()),
        None => ScopePattern::Exact(text.to_owned()),
    }
}

fn intersection(a: &ScopePattern, b: &ScopePattern) -> Option<ScopePattern> {
    use ScopePattern::{Exact, Prefix};
    match (a, b) {
        (Exact(a), Exact(b)) => (a == b).then(|| Exact(a.clone())),
        (Exact(scope), Prefix(prefix)) | (Prefix(prefix), Exact(scope)) => {
            scope.starts_with(prefix).then(|| Exact(scope.clone()))
        }
        (Prefix(a), Prefix(b)) => {
            let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
            long.starts_with(short.as_str()).then(|| Prefix(long.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersections_are_what_both_cover() {
        let table = [
            ("rest/a", "rest/a", Some("rest/a")),
            ("rest/a", "rest/b", None),
            ("rest/a", "rest/*", Some("rest/a")),
            ("rest/*", "rest/a", Some("rest/a")),
            ("rest/*", "mail", None),
            ("rest/*", "rest/t*", Some("rest/t*")),
            ("rest/t*", "*", Some("rest/t*")),
            ("rest/*", "mail/*", None),
            ("*", "*", Some("*")),
        ];
        for (own, requested, common) in table {
            let both = intersection(&pattern(own), &pattern(requested));
            assert_eq!(both, common.map(pattern), "{own} and {requested}");
        }
    }

    #[test]
    fn anonymous_sees_every_scope() {
        assert_eq!(visible(&Caller::anonymous(), None).unwrap(), [ScopePattern::Prefix(String::new())]);
    }
}
