//! The acquirer's side of the ledger, asked of its sandbox.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use reqwest::{Client, StatusCode};
use serde_json::Value;

use super::{AcquirerPayment, Totals};

const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the sandbox for what it did.
pub(super) struct Acquirer {
    client: Client,
    base: String,
}

impl Acquirer {
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().timeout(PATIENCE).build()?;
        Ok(Self { client, base: format!("http://{address}") })
    }

    pub(super) async fn totals(&self) -> anyhow::Result<Totals> {
        let totals = self.get("/sandbox/totals").await?.context("a sandbox without totals")?;
        Ok(Totals {
            charges: number(&totals, "charges")?,
            captured: number(&totals, "captured")?,
            refunded: number(&totals, "refunded")?,
        })
    }

    /// A payment by its id; none when it was never seen there.
    pub(super) async fn payment(&self, id: &str) -> anyhow::Result<Option<AcquirerPayment>> {
        let Some(counters) = self.get(&format!("/sandbox/payments/{id}")).await? else { return Ok(None) };
        let Some(payment) = self.get(&format!("/payments/{id}")).await? else { return Ok(None) };
        let text = |name: &str| payment[name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
        let refunds = payment["refunds"].as_array().context("no refunds")?;
        let refund = |refund: &Value| {
            Ok((refund["id"].as_str().context("a refund without an id")?.to_owned(), number(refund, "amount")?))
        };
        Ok(Some(AcquirerPayment {
            status: text("status")?,
            amount: number(&payment, "amount")?,
            currency: text("currency")?,
            charges: number(&counters, "charges")?,
            refunds: refunds.iter().map(refund).collect::<anyhow::Result<_>>()?,
        }))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let response = self.client.get(format!("{}{path}", self.base)).send().await?;
        match response.status() {
            StatusCode::OK => Ok(Some(serde_json::from_slice(&response.bytes().await?)?)),
            StatusCode::NOT_FOUND => Ok(None),
            other => bail!("the sandbox answered {other} to {path}"),
        }
    }
}

fn number(value: &Value, name: &str) -> anyhow::Result<i64> {
    value[name].as_i64().with_context(|| format!("{name} is no number in {value}"))
}
