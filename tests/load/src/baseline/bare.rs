//! (c) The floor of HTTP: read the body, answer JSON.

use std::net::SocketAddr;

use axum::{
    Router,
    http::{StatusCode, header},
};
use bytes::Bytes;
use clap::Args;

/// A bare handler.
#[derive(Clone, Debug, Args)]
pub struct Bare {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// How long its answer is.
    #[arg(long)]
    answer_bytes: usize,
}

// === impl Bare ===

impl Bare {
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let answer = super::answer_of(self.answer_bytes);
        let handler = move |_body: Bytes| {
            let answer = answer.clone();
            async move { (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], answer) }
        };
        super::serve_http(self.listen, Router::new().fallback(handler)).await
    }
}
