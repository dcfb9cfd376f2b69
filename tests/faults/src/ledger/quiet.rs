//! Waits until nothing moves any more: every key is settled, every refund acknowledged, every late charge found.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Reader;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits until nothing is open, or the time is over; returns what still is.
pub async fn until_quiet(reader: &mut Reader<'_>, patience: Duration) -> Vec<String> {
    let deadline = Instant::now() + patience;
    loop {
        let open = match reader.open().await {
            Ok(open) => open,
            Err(error) => vec![format!("the ledger cannot be read: {error:#}")],
        };
        if open.is_empty() || Instant::now() >= deadline {
            return open;
        }
        sleep(LOOK_EVERY).await;
    }
}
