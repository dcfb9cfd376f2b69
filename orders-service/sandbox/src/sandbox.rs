//! The composition root: binds, then serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use chassis::listen::{self, BindError};
use chassis::serve::{self, Drained};
use chassis::shutdown::Shutdown;
use chassis::trace::HttpServerLayer;
use tokio::net::TcpListener;

use crate::acquirer::Acquirer;
use crate::background::Background;
use crate::config::Config;
use crate::error::ApiError;
use crate::webhooks::{self, InvalidWebhookUrl, Webhooks};
use crate::{api, control};

/// Far more than any body the sandbox takes.
const BODY_LIMIT: usize = 64 * 1024;

/// The acquirer sandbox, bound to its address and not serving yet.
pub struct Sandbox {
    listener: TcpListener,
    local_addr: SocketAddr,
    webhooks: Arc<Webhooks>,
    drain: Duration,
}

/// Why the sandbox does not start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Webhooks cannot be sent to such a URL.
    #[error(transparent)]
    WebhookUrl(#[from] InvalidWebhookUrl),
    /// The development secret is public, so nobody but this machine may see what it signs.
    #[error("a webhook secret is needed to listen on {listen}: give --webhook-secret, or listen on loopback")]
    NoSecret {
        /// Where it was to listen.
        listen: SocketAddr,
    },
    /// A signature under an empty secret proves nothing.
    #[error("the webhook secret is empty: give --webhook-secret a value, or leave it out on loopback")]
    EmptySecret,
    /// No HTTP client could be made.
    #[error("cannot make the client that sends webhooks")]
    Client(#[source] reqwest::Error),
}

// === impl Sandbox ===

impl Sandbox {
    /// Takes the address and checks the rest of the configuration. Call inside a runtime.
    pub fn bind(config: Config) -> Result<Self, SandboxError> {
        let secret = config.secret()?;
        let url = config.webhook_url.as_deref().map(webhooks::parse_url).transpose()?;
        let webhooks = Arc::new(Webhooks::new(secret, url).map_err(SandboxError::Client)?);
        let listener = listen::bind(config.listen, "the acquirer sandbox", "--listen")?;
        let local_addr = listener.local_addr().expect("a bound socket has an address");
        Ok(Sandbox { listener, local_addr, webhooks, drain: config.drain })
    }

    /// Where it listens: the real port when 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Sends webhooks there from now on: for a world whose ports are known only after everything is bound.
    pub fn set_webhook_url(&self, url: &str) -> Result<(), InvalidWebhookUrl> {
        self.webhooks.set_url(webhooks::parse_url(url)?);
        Ok(())
    }

    /// Serves until the shutdown drains, then answers what is in flight. Connections that hang on purpose are closed then;
    /// webhooks still to be sent are lost with everything else the sandbox knows.
    pub async fn serve(self, shutdown: Shutdown) -> Drained {
        let (end, background) = Background::new();
        let acquirer = Acquirer::new(self.webhooks, background, shutdown.clone());
        let drained = serve::http(self.listener, router(acquirer), shutdown, self.drain).await;
        end.reach().await;
        drained
    }
}

fn router(acquirer: Arc<Acquirer>) -> Router {
    Router::new()
        .merge(api::routes(&acquirer))
        .merge(control::routes())
        .fallback(async || ApiError::no_route())
        .method_not_allowed_fallback(async || ApiError::no_method())
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(HttpServerLayer)
        .with_state(acquirer)
}
