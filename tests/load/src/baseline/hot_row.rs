//! (b) Orders on one hot row of stock, each a transaction of its own: take the seat under a guard, insert the order, commit.

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

const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS stock (id TEXT PRIMARY KEY, capacity BIGINT NOT NULL, sold BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS sales (id UUID PRIMARY KEY, stock TEXT NOT NULL, quantity BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL);
INSERT INTO stock VALUES ('hot', 1000000000, 0) ON CONFLICT DO NOTHING";
const TAKE: &str = "UPDATE stock SET sold = sold + 1 WHERE id = 'hot' AND sold + 1 <= capacity";
const INSERT: &str = "INSERT INTO sales VALUES ($1, 'hot', 1, now())";

/// The loop.
#[derive(Clone, Debug, Args)]
pub struct HotRow {
    /// A database.
    #[arg(long)]
    url: String,
    /// Connections, each with one order under way.
    #[arg(long)]
    clients: usize,
    /// How long it is measured.
    #[arg(long, value_parser = humantime::parse_duration)]
    length: Duration,
    /// How long before that it runs already.
    #[arg(long, value_parser = humantime::parse_duration)]
    warm_up: Duration,
}

struct Order {
    client: Client,
    take: Statement,
    insert: Statement,
}

// === impl HotRow ===

impl HotRow {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        super::on_one_thread(async move || self.measure().await).await
    }

    async fn measure(self) -> anyhow::Result<()> {
        connect(&self.url).await?.batch_execute(TABLES).await?;
        let mut orders = Vec::new();
        for _ in 0..self.clients {
            let client = connect(&self.url).await?;
            let (take, insert) = (client.prepare(TAKE).await?, client.prepare(INSERT).await?);
            orders.push(Order { client, take, insert });
        }
        let plan = Plan { pace: Pace::Closed, warm_up: self.warm_up, length: self.length };
        let measured = drive("one order a transaction", orders, plan).await;
        say::result(&measured.to_json().to_string());
        Ok(())
    }
}

// === impl Order ===

impl Session for Order {
    async fn once(&mut self) -> Answer {
        match self.sell().await {
            Ok(1) => Answer::Expected,
            Ok(_) => Answer::Unexpected("sold out".to_owned()),
            Err(error) => Answer::Unexpected(error.to_string()),
        }
    }
}

impl Order {
    async fn sell(&mut self) -> Result<u64, tokio_postgres::Error> {
        let transaction = self.client.transaction().await?;
        let taken = transaction.execute(&self.take, &[]).await?;
        transaction.execute(&self.insert, &[&Uuid::new_v4()]).await?;
        transaction.commit().await?;
        Ok(taken)
    }
}
