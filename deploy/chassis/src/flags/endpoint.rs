//! Where another service listens.

use http::Uri;
use std::{fmt, str::FromStr};

/// `http://host:port` or `https://host:port`, nothing before, between or after.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    is_encrypted: bool,
    authority: http::uri::Authority,
}

/// A text that is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an endpoint such as http://127.0.0.1:7001: {why}")]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

// === impl Endpoint ===

impl Endpoint {
    /// The host as written; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().expect("from_str refuses an endpoint without a port")
    }

    /// Whether it is `https://`.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn scheme(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// The endpoint as a URI with the path `/`.
    pub fn uri(&self) -> Uri {
        Uri::builder()
            .scheme(self.scheme())
            .authority(self.authority.clone())
            .path_and_query("/")
            .build()
            .expect("scheme, authority and path make a URI")
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = |why| Err(EndpointError { text: text.to_owned(), why });
        let Some((scheme, _)) = text.split_once("://") else {
            return refused("it does not begin with http://");
        };
        let is_encrypted = scheme.eq_ignore_ascii_case("https");
        if !is_encrypted && !scheme.eq_ignore_ascii_case("http") {
            return refused("only http:// and https:// are supported");
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return refused("it is not a URL");
        };
        let parts = uri.into_parts();
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return refused("it must end after the port");
        }
        let Some(authority) = parts.authority else {
            return refused("the host is missing");
        };
        if authority.as_str().contains('@') {
            return refused("it must not carry a user");
        }
        if authority.host().is_empty() {
            return refused("the host is missing");
        }
        match authority.port_u16() {
            Some(port) if port != 0 => Ok(Self { is_encrypted, authority }),
            _ => refused("the port is missing or is none"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_read_and_written_back() {
        assert_eq!("HTTPS://idem:7001".parse::<Endpoint>().unwrap().to_string(), "https://idem:7001");
        for (text, host, port) in [
            ("http://127.0.0.1:7001", "127.0.0.1", 7001),
            ("http://idem:7001/", "idem", 7001),
            ("HTTP://[::1]:80", "[::1]", 80),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!((endpoint.host(), endpoint.port()), (host, port));
            assert_eq!(endpoint.to_string(), format!("http://{host}:{port}"));
            assert_eq!(endpoint.uri().to_string(), format!("http://{host}:{port}/"));
        }
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        let table = [
            ("127.0.0.1:7001", "does not begin with http://"),
            ("ftp://idem:7001", "only http:// and https://"),
            ("https://idem", "port is missing"),
            ("http://idem", "port is missing"),
            ("http://idem:0", "port is missing"),
            ("http://idem:port", "port is missing or is none"),
            ("http://idem:99999", "port is missing or is none"),
            ("http://idem:7001/path", "end after the port"),
            ("http://idem:7001?x=1", "end after the port"),
            ("http://user@idem:7001", "user"),
            ("http://:7001", ""),
            ("http://", ""),
            ("", ""),
        ];
        for (text, why) in table {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(text), "{text}: {error}");
        }
    }
}
