//! (e) What many write first: one process, the key inserted, the answer updated, each in a statement of its own.
//!
//! It sells nothing, judges no fingerprint, and a caller that leaves between the two statements leaves its key behind for ever.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use clap::Args;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;

const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS answers (
    key        TEXT PRIMARY KEY,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    status     INT,
    body       BYTEA
)";
const RESERVE: &str = "INSERT INTO answers (key) VALUES ($1) ON CONFLICT DO NOTHING";
const COMPLETE: &str = "UPDATE answers SET status = 201, body = $2 WHERE key = $1";
const REPLAY: &str = "SELECT body FROM answers WHERE key = $1";

/// A plain handler on Postgres.
#[derive(Clone, Debug, Args)]
pub struct Naive {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// How long its answer is.
    #[arg(long)]
    answer_bytes: usize,
    /// Where it keeps keys.
    #[arg(long)]
    url: String,
    /// Connections at most.
    #[arg(long)]
    pool: usize,
}

#[derive(Clone)]
struct Handler {
    pool: Pool,
    answer: Bytes,
}

// === impl Naive ===

impl Naive {
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.url.parse()?, NoTls, settings);
        let pool = Pool::builder(manager).max_size(self.pool).build()?;
        pool.get().await?.batch_execute(TABLE).await?;
        let handler = Handler { pool, answer: super::answer_of(self.answer_bytes) };
        super::serve_http(self.listen, Router::new().fallback(handle).with_state(handler)).await
    }
}

async fn handle(State(handler): State<Handler>, headers: HeaderMap, _body: Bytes) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|value| value.to_str().ok()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match handler.answer(key).await {
        Ok(body) => (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response(),
    }
}

// === impl Handler ===

impl Handler {
    async fn answer(&self, key: &str) -> anyhow::Result<Bytes> {
        let client = self.pool.get().await?;
        let reserve = client.prepare_cached(RESERVE).await?;
        if client.execute(&reserve, &[&key]).await? == 0 {
            let replay = client.prepare_cached(REPLAY).await?;
            let body: Option<Vec<u8>> = client.query_one(&replay, &[&key]).await?.get(0);
            return body.map(Bytes::from).ok_or_else(|| anyhow::anyhow!("this key is in progress for ever"));
        }
        let complete = client.prepare_cached(COMPLETE).await?;
        client.execute(&complete, &[&key, &self.answer.as_ref()]).await?;
        Ok(self.answer.clone())
    }
}
