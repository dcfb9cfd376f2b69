//! Which pages in browsers may call the API.
//!
//! Preflights are answered before authentication, since browsers send them without it.

use http::{HeaderName, HeaderValue, Method, header};
use std::{str::FromStr, time::Duration};
use tower_http::cors::{AllowOrigin, CorsLayer};

/// Browsers forget a preflight after this; a change of the rules must not take longer.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What a browser may send beyond the headers that are always allowed.
const SENT: [HeaderName; 5] = [
    HeaderName::from_static("idempotency-key"),
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("prefer"),
    HeaderName::from_static("traceparent"),
];

/// What a page may read of an answer beyond the headers that are always readable.
const EXPOSED: [HeaderName; 7] = [
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("idempotent-replayed"),
    HeaderName::from_static("idempotency-key-expires"),
    header::RETRY_AFTER,
    HeaderName::from_static("preference-applied"),
    header::LOCATION,
    header::LINK,
];

/// An origin whose pages may call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// All of them.
    Any,
    /// `scheme://host` or `scheme://host:port`, as browsers write it.
    Only(HeaderValue),
}

/// A text that is no origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an origin such as https://shop.example or http://localhost:3000 (no path, no slash at the end)")]
pub struct OriginError(String);

/// The layer for the whole API. Without origins it still answers preflights, but allows nobody.
pub(crate) fn layer(origins: &[Origin]) -> CorsLayer {
    let listed = origins.iter().filter_map(|origin| match origin {
        Origin::Any => None,
        Origin::Only(value) => Some(value.clone()),
    });
    let allowed = if origins.contains(&Origin::Any) { AllowOrigin::any() } else { AllowOrigin::list(listed) };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::PUT, Method::POST])
        .allow_headers(SENT)
        .expose_headers(EXPOSED)
        .max_age(REMEMBERED)
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let text = text.trim();
        if text == "*" {
            return Ok(Self::Any);
        }
        let refused = || OriginError(text.to_owned());
        let (scheme, host) = text.split_once("://").ok_or_else(refused)?;
        let authority: http::uri::Authority = host.parse().map_err(|_| refused())?;
        let is_plain = !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
            && authority.as_str() == host
            && !host.contains('@');
        // Browsers write scheme and host in lower case, and compare bytes.
        let value = HeaderValue::try_from(text.to_ascii_lowercase()).map_err(|_| refused())?;
        if is_plain { Ok(Self::Only(value)) } else { Err(refused()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_scheme_host_and_port_only() {
        for text in ["https://shop.example", "http://localhost:3000", "http://[::1]:3000", "HTTPS://Shop.Example"] {
            let origin = text.parse::<Origin>();
            assert_eq!(origin, Ok(Origin::Only(HeaderValue::try_from(text.to_ascii_lowercase()).unwrap())), "{text}");
        }
        assert_eq!("*".parse::<Origin>(), Ok(Origin::Any));
        for text in
            ["", "shop.example", "https://", "https://shop.example/", "https://a@shop.example", "://a", "https://a b"]
        {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
