//! Waiting for something that happens in the background.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// Long enough for two busy cores; a test that meets it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is there; panics with `what` when it never comes.
pub async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to pass that {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
