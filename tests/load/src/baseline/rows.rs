//! (a) The two statements of a reservation, one row a time, each its own commit, without a network of services around them.

use std::time::Duration;

use clap::Args;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::{
    generator::{
        Answer, Session,
        loops::drive,
        pace::{Pace, Plan},
    },
    say,
    stage::postgres::connect,
};

const RESERVE: &str = "\
INSERT INTO idem_keys (
       scope, key, operation_id, fencing_token, fingerprint, attempt_id, granted_by, past_attempts, attempts, retention_micros,
       trace_context, state, lease_until, created_at, updated_at, version)
VALUES ('rest/load', $1, $2, 1, $3, $2, 'reserve', '', 1, 86400000000, '', 'in_progress',
       clock_timestamp() + INTERVAL '60 s', clock_timestamp(), clock_timestamp(), 1)
    ON CONFLICT (scope, key) DO NOTHING
RETURNING version";
const COMPLETE: &str = "\
UPDATE idem_keys
   SET state = 'completed', lease_until = NULL, completed_at = clock_timestamp(),
       expires_at = clock_timestamp() + INTERVAL '24 h', updated_at = clock_timestamp(), version = version + 1,
       response_status = 201, response_headers = '[]', response_resource_id = '', response_body = $3
 WHERE scope = 'rest/load'
   AND key = $1
   AND operation_id = $2
   AND version = 1
RETURNING expires_at";

/// The loop.
#[derive(Clone, Debug, Args)]
pub struct Rows {
    /// A database with the tables of the idempotency service.
    #[arg(long)]
    url: String,
    /// Connections, each with one statement under way.
    #[arg(long)]
    clients: usize,
    /// How long it is measured.
    #[arg(long, value_parser = humantime::parse_duration)]
    length: Duration,
    /// How long before that it runs already.
    #[arg(long, value_parser = humantime::parse_duration)]
    warm_up: Duration,
    /// How long the stored answer is.
    #[arg(long)]
    answer_bytes: usize,
}

struct Pair {
    client: Client,
    reserve: Statement,
    complete: Statement,
    answer: Vec<u8>,
}

// === impl Rows ===

impl Rows {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        super::on_one_thread(async move || self.measure().await).await
    }

    async fn measure(self) -> anyhow::Result<()> {
        let mut pairs = Vec::new();
        for _ in 0..self.clients {
            let client = connect(&self.url).await?;
            let (reserve, complete) = (client.prepare(RESERVE).await?, client.prepare(COMPLETE).await?);
            let answer = super::answer_of(self.answer_bytes).to_vec();
            pairs.push(Pair { client, reserve, complete, answer });
        }
        let plan = Plan { pace: Pace::Closed, warm_up: self.warm_up, length: self.length };
        let measured = drive("one row a time", pairs, plan).await;
        say::result(&measured.to_json().to_string());
        Ok(())
    }
}

// === impl Pair ===

impl Session for Pair {
    async fn once(&mut self) -> Answer {
        match self.pair().await {
            Ok(true) => Answer::Expected,
            Ok(false) => Answer::Unexpected("a row was not written".to_owned()),
            Err(error) => Answer::Unexpected(error.to_string()),
        }
    }
}

impl Pair {
    async fn pair(&self) -> Result<bool, tokio_postgres::Error> {
        let id = Uuid::new_v4();
        let (key, fingerprint) = (id.to_string(), [7_u8; 32]);
        let granted = self.client.query_opt(&self.reserve, &[&key, &id, &&fingerprint[..]]).await?;
        let stored = self.client.query_opt(&self.complete, &[&key, &id, &&self.answer[..]]).await?;
        Ok(granted.is_some() && stored.is_some())
    }
}
