//! (d) The floor of a hop: HTTP in, one unary call over one channel, its answer out.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use clap::Args;
use idem_proto::idem::v1::{self as proto, idempotency_service_client::IdempotencyServiceClient};
use tonic::transport::{Channel, Endpoint};

/// A handler with one hop.
#[derive(Clone, Debug, Args)]
pub struct Hop {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// The echo.
    #[arg(long)]
    echo: String,
}

// === impl Hop ===

impl Hop {
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let channel = Endpoint::from_shared(self.echo)?.tcp_nodelay(true).connect_lazy();
        let routes = Router::new().fallback(ask).with_state(IdempotencyServiceClient::new(channel));
        super::serve_http(self.listen, routes).await
    }
}

async fn ask(
    State(mut client): State<IdempotencyServiceClient<Channel>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let request = proto::ReserveRequest {
        scope: "rest/load".to_owned(),
        key: key.to_owned(),
        // As long as a fingerprint, without the work of one.
        fingerprint: body.slice(..body.len().min(32)),
        ..proto::ReserveRequest::default()
    };
    let answer = client.reserve(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?.into_inner();
    let Some(proto::reserve_response::Outcome::Replay(replay)) = answer.outcome else {
        return Err(StatusCode::BAD_GATEWAY);
    };
    let body = replay.response.map(|response| response.body).unwrap_or_default();
    Ok((StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}
