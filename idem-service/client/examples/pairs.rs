//! How many reservations are made and completed a second, over one client: `pairs ENDPOINT [CALLERS] [SECONDS] [fold|apart]`.
//!
//! Each caller reserves a fresh key and completes it with a small answer, again and again. It prints pairs a second, and how long a
//! pair took at the median and at the ninety-ninth percentile.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use idem_client::{Finished, IdemClient, Intent, KeyId, Reserved};
use idem_core::{Fingerprint, IdempotencyKey, Response, Scope};
use tokio::time::Instant;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(10);

async fn pair(idem: &IdemClient) -> anyhow::Result<()> {
    let key = KeyId { scope: Scope::new("pairs/a")?, key: IdempotencyKey::new(Uuid::new_v4().to_string())? };
    let intent = Intent::new(key, Fingerprint::of_request("POST", "/pairs", "", b"{}")?);
    let Reserved::Granted(granted) = idem.reserve(&intent, Instant::now() + PATIENCE).await? else {
        anyhow::bail!("a fresh key is granted")
    };
    let held = (granted.grant.operation_id, granted.grant.token);
    let response = Response::new(201, vec![], "{\"id\":\"7f8a2c9e\"}".into(), "7f8a2c9e".into())?;
    let finished = idem.complete(&intent.key, held, &response, Instant::now() + PATIENCE).await?;
    ensure!(matches!(finished, Finished::Done(_)), "it is completed");
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "every caller is a task of its own, as in a server")]
async fn callers(idem: &IdemClient, callers: usize, lasting: Duration) -> anyhow::Result<Vec<Duration>> {
    let until = Instant::now() + lasting;
    let running = (0..callers).map(|_| {
        let idem = idem.clone();
        tokio::spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                pair(&idem).await?;
                took.push(begun.elapsed());
            }
            anyhow::Ok(took)
        })
    });
    let all = try_join_all(running).await?;
    Ok(all.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

#[allow(clippy::print_stdout, reason = "that is what it is for")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let endpoint = args.next().context("which endpoint, such as http://127.0.0.1:7001")?;
    let number = |arg: Option<String>, default: u64| arg.map_or(Ok(default), |arg| arg.parse());
    let (count, seconds) = (number(args.next(), 64)?, number(args.next(), 5)?);
    let fold = args.next().as_deref() != Some("apart");
    let idem = IdemClient::builder(endpoint).fold(fold).connect_lazy()?;
    callers(&idem, usize::try_from(count)?, Duration::from_secs(1)).await?;
    let lasting = Duration::from_secs(seconds);
    let mut took = callers(&idem, usize::try_from(count)?, lasting).await?;
    took.sort_unstable();
    ensure!(!took.is_empty(), "nothing was done");
    let at = |hundredths: usize| took[(took.len() * hundredths / 100).min(took.len() - 1)];
    println!(
        "{:.0} pairs/s, p50 {:.1?}, p99 {:.1?} ({count} callers, {})",
        took.len() as f64 / lasting.as_secs_f64(),
        at(50),
        at(99),
        if fold { "folded" } else { "apart" },
    );
    Ok(())
}
