//! The way to the service: lazy, kept alive, reconnecting, spread over its replicas.

use std::{sync::Arc, time::Duration};

use dial::{Channel, ClientTls, Dns, EndpointError, Resolve, Settings};
use http::HeaderMap;
use idem_proto::idem::v1::{
    admin_service_client::AdminServiceClient, idempotency_service_client::IdempotencyServiceClient,
};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tracing::Span;

use crate::{IdemClient, repeat::Budget};

// Connections to each replica: a try that hangs on one is repeated on the other.
const CHANNELS_DEFAULT: usize = 2;
// Shorter than one try, so that the next try finds a fresh attempt at connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(800);
// A peer that vanished without a word is noticed within the sum of these two.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

// The largest answer that is read: a stored response is at most one, a page of records carries no bodies.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;
// The largest answer to a call of many: the contract's own limit.
const MANY_MAX: usize = 16 * 1024 * 1024;

type TraceHook = Arc<dyn Fn(&mut HeaderMap) + Send + Sync>;

/// The bearer token that a service shows. It never appears in debug output.
#[derive(Clone)]
pub struct ServiceToken(MetadataValue<Ascii>);

/// A token with characters that no header can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the service token must be visible ASCII characters")]
pub struct TokenError;

/// An endpoint that nobody can connect to.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint:?} cannot be called: {why}")]
pub struct ConnectError {
    endpoint: String,
    why: EndpointError,
}

/// How to connect.
#[derive(Clone)]
pub struct Builder {
    endpoint: String,
    token: Option<ServiceToken>,
    channels: usize,
    fold: bool,
    tls: Option<ClientTls>,
    resolver: Arc<dyn Resolve>,
    trace_hook: Option<TraceHook>,
}

/// The connections of one client, and what every request carries.
pub(crate) struct Channels {
    channel: Channel,
    /// What repeating may cost.
    pub(crate) budget: Budget,
    authorization: Option<MetadataValue<Ascii>>,
    trace_hook: Option<TraceHook>,
}

/// The calls on keys, over one connection.
pub(crate) fn keys(channel: Channel) -> IdempotencyServiceClient<Channel> {
    IdempotencyServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX)
}

/// The calls on many keys, over one connection.
pub(crate) fn many_keys(channel: Channel) -> IdempotencyServiceClient<Channel> {
    IdempotencyServiceClient::new(channel).max_decoding_message_size(MANY_MAX)
}

/// The calls of reconcilers and operators, over one connection.
pub(crate) fn admin(channel: Channel) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX)
}

// === impl ServiceToken ===

impl ServiceToken {
    /// Checks that a header can carry it.
    pub fn new(token: &str) -> Result<Self, TokenError> {
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TokenError);
        }
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| TokenError)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

// === impl Builder ===

impl Builder {
    pub(crate) fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            token: None,
            channels: CHANNELS_DEFAULT,
            fold: true,
            tls: None,
            resolver: Arc::new(Dns),
            trace_hook: None,
        }
    }

    /// The bearer token to show.
    #[must_use]
    pub fn token(self, token: impl Into<Option<ServiceToken>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// How many connections to keep to each replica; at least one. Calls go where the fewest wait, and a repeated try takes another.
    #[must_use]
    pub fn channels(self, channels: usize) -> Self {
        Self { channels: channels.max(1), ..self }
    }

    /// Whether calls that wait while others are under way go as one message; true by default.
    #[must_use]
    pub fn fold(self, fold: bool) -> Self {
        Self { fold, ..self }
    }

    /// Whom to believe, and what to show, on `https://` endpoints.
    #[must_use]
    pub fn tls(self, tls: impl Into<Option<ClientTls>>) -> Self {
        Self { tls: tls.into(), ..self }
    }

    /// How the addresses of the replicas are found; by the system's resolver by default, again and again.
    #[must_use]
    pub fn resolver(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// Called with the metadata of each request, inside the span of the call: the place to write `traceparent`.
    #[must_use]
    pub fn trace_with(self, hook: impl Fn(&mut HeaderMap) + Send + Sync + 'static) -> Self {
        Self { trace_hook: Some(Arc::new(hook)), ..self }
    }

    /// A client that connects at its first call, and again whenever a connection is lost. It may be made before its service is there.
    pub fn connect_lazy(self) -> Result<IdemClient, ConnectError> {
        let settings = Settings {
            tls: self.tls,
            connections: self.channels,
            connect_timeout: CONNECT_TIMEOUT,
            ping: (PING_INTERVAL, PING_TIMEOUT),
            resolver: self.resolver,
            ..Settings::default()
        };
        let channel =
            Channel::new(&self.endpoint, settings).map_err(|why| ConnectError { endpoint: self.endpoint, why })?;
        let channels = Channels {
            channel,
            budget: Budget::default(),
            authorization: self.token.map(|token| token.0),
            trace_hook: self.trace_hook,
        };
        Ok(IdemClient::over(channels, self.fold))
    }
}

// === impl Channels ===

impl Channels {
    /// Every connection; each call takes the best one.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// What a request under `span` would carry as its trace; empty without any.
    pub(crate) fn traceparent(&self, span: &Span) -> String {
        let Some(hook) = &self.trace_hook else { return String::new() };
        let mut headers = HeaderMap::new();
        span.in_scope(|| hook(&mut headers));
        headers.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// A request with everything that it carries beside its message; `timeout` becomes `grpc-timeout`.
    pub(crate) fn request<M>(&self, message: M, timeout: Duration) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        if let Some(hook) = &self.trace_hook {
            let mut headers = std::mem::take(request.metadata_mut()).into_headers();
            hook(&mut headers);
            *request.metadata_mut() = MetadataMap::from_headers(headers);
        }
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request.set_timeout(timeout);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endpoint_without_scheme_or_host_is_refused_with_an_example() {
        for bad in ["", "localhost:7001", "127.0.0.1:7001", "ftp://host:1", "http://", "http:///x", "not an endpoint"] {
            let Err(error) = Builder::new(bad).connect_lazy() else { panic!("{bad:?} was accepted") };
            assert!(error.to_string().contains("http://host:port"), "{error}");
        }
        assert!(Builder::new("http://localhost:7001").connect_lazy().is_ok());
        let Err(error) = Builder::new("https://localhost:7001").connect_lazy() else { panic!("whom to believe?") };
        assert!(error.to_string().contains("whose certificates to believe"), "{error}");
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        for bad in ["", "a b", "a\nb", "é"] {
            assert!(ServiceToken::new(bad).is_err(), "{bad:?}");
        }
        assert!(ServiceToken::new("tok_1-2.3~").is_ok());
    }
}
