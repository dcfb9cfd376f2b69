//! Keys that are in the table before anybody measures.

use std::time::Duration;

use anyhow::ensure;

use super::reserving::FINGERPRINT;
use crate::{say, stage::postgres::Server, stage::system::SCOPE};

/// Written in one statement.
const CHUNK: u64 = 250_000;

/// Which keys.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// How many.
    pub count: u64,
    /// How long the stored body of each is.
    pub body_bytes: usize,
    /// How long from now they are replayed; none when that is over already.
    pub live: Option<Duration>,
}

// === impl Loaded ===

impl Loaded {
    /// Writes completed keys into the database of an idempotency service, and leaves nothing for vacuum to do.
    pub async fn into(self, postgres: &Server, database: &str) -> anyhow::Result<()> {
        let client = postgres.client(database).await?;
        let seconds = self.live.map_or(-3600.0, |live| live.as_secs_f64());
        let fingerprint: &[u8] = &FINGERPRINT;
        let bytes = i32::try_from(self.body_bytes)?;
        let insert = client.prepare(INSERT).await?;
        let mut written = 0;
        while written < self.count {
            let (first, last) = (written, self.count.min(written + CHUNK));
            let range = [i64::try_from(first)?, i64::try_from(last)? - 1];
            written += client.execute(&insert, &[&range[0], &range[1], &SCOPE, &fingerprint, &seconds, &bytes]).await?;
            ensure!(written == last, "{written} of {last} keys were written");
            say::progress(&format!("  {written} of {} keys loaded", self.count));
        }
        client.batch_execute("VACUUM (ANALYZE) idem_keys").await?;
        postgres.checkpoint().await
    }
}

/// The n-th of them.
pub fn name(number: u64) -> String {
    format!("loaded-{number:010}")
}

/// How many are still there.
pub async fn left(postgres: &Server, database: &str) -> anyhow::Result<i64> {
    let query = "SELECT count(*) FROM idem_keys WHERE key LIKE 'loaded-%'";
    Ok(postgres.client(database).await?.query_one(query, &[]).await?.get(0))
}

const INSERT: &str = "\
INSERT INTO idem_keys (
       scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts, retention_micros,
       trace_context, state, completed_at, expires_at, created_at, updated_at, version,
       response_status, response_headers, response_resource_id, response_body)
SELECT $3, 'loaded-' || lpad(n::TEXT, 10, '0'), gen_random_uuid(), 1, $4, gen_random_uuid(), 'reserve', '', 1, 86400000000,
       '', 'completed', now(), now() + $5 * INTERVAL '1 second', now(), now(), 2,
       201, '[[\"content-type\",\"application/json\"]]', '', convert_to(repeat('x', $6), 'UTF8')
  FROM generate_series($1::BIGINT, $2::BIGINT) AS n";
