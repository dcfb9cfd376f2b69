//! Deletes records whose retention is over, a batch at a time, so that nobody waits behind it.
//!
//! Expiry itself does not depend on it: a Reserve judges the retention in the statement that claims the key.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use chassis::tasks;
use tokio::time::{Instant, sleep};

use crate::store::Store;

/// Deleting is a short transaction: rows are locked for milliseconds, and a Reserve waits no longer than that.
const BATCH: u32 = 250;
/// Between two batches at least, and as many times as long as the batch took: whatever else the store has to do, a backlog leaves it to
/// the callers four fifths of the time.
const PAUSE: Duration = Duration::from_millis(10);
const SHARE: u32 = 4;
/// An idle system looks less and less often, down to this many times the interval.
const IDLE_FACTOR_MAX: u32 = 10;

/// Purges until it is dropped, looking every `interval` while there is something to delete and less often when there is not.
pub(crate) async fn run(store: Arc<dyn Store>, interval: Duration) {
    let mut idle_rounds = 0;
    loop {
        // The first look waits too: a process that starts has better things to do.
        sleep(interval * (idle_rounds + 1).min(IDLE_FACTOR_MAX)).await;
        match tasks::round("purge", purge(store.as_ref())).await {
            None | Some(0) => idle_rounds += 1,
            Some(_) => idle_rounds = 0,
        }
    }
}

/// Deletes batch after batch until one is not full, and says how many records went.
async fn purge(store: &dyn Store) -> u64 {
    let mut purged = 0;
    loop {
        let begun = Instant::now();
        let batch = match store.purge(BATCH).await {
            Ok(batch) => batch,
            Err(error) => {
                tracing::warn!(error = &error as &dyn Error, "the purge did not finish, the next one goes on");
                metrics::counter!("idem_purges_failed_total").increment(1);
                return purged;
            }
        };
        purged += batch;
        metrics::counter!("idem_purged_total").increment(batch);
        if batch < u64::from(BATCH) {
            return purged;
        }
        sleep(PAUSE.max(begun.elapsed() * SHARE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        AuditRow, Counts, Cursor, Entry, Filter, KeyId, LiveKeys, Open, ScopePattern, Snapshot, StoreError, Swap,
        SwapRequest,
    };
    use async_trait::async_trait;
    use idem_core::IdempotencyKey;
    use std::sync::Mutex;
    use tokio::time::timeout;

    /// An answer that never comes, because the store panics.
    const PANICS: u64 = u64::MAX;
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Remembers when it was asked to purge, and answers what it was told.
    #[derive(Default)]
    struct Purges {
        answers: Mutex<Vec<Result<u64, StoreError>>>,
        asked: Mutex<Vec<Instant>>,
        takes: Duration,
    }

    #[async_trait]
    impl Store for Purges {
        async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
            assert!(limit <= 5_000);
            self.asked.lock().unwrap().push(Instant::now());
            let answer = self.answers.lock().unwrap().pop().unwrap_or(Ok(0));
            assert!(!matches!(answer, Ok(PANICS)), "on purpose");
            sleep(self.takes).await;
            answer
        }

        async fn load(&self, _: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn swap(&self, _: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn list(&self, _: &Filter, _: Option<&Cursor>, _: u32) -> Result<Vec<Entry>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn count(&self, _: &[ScopePattern]) -> Result<Counts, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn count_open(&self) -> Result<Open, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn audits(
            &self,
            _: &[ScopePattern],
            _: Option<&IdempotencyKey>,
            _: Option<i64>,
            _: u32,
        ) -> Result<Vec<AuditRow>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn count_live(&self, _: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn hand_out_stale(&self, _: &[ScopePattern], _: u32, _: Duration) -> Result<Vec<Entry>, StoreError> {
            unreachable!("the sweeper only purges")
        }

        async fn ping(&self) -> Result<(), StoreError> {
            unreachable!("the sweeper only purges")
        }
    }

    /// After how long it was asked, each time within `span`, when the answers are `answers` and then always zero.
    async fn asked(answers: Vec<Result<u64, StoreError>>, span: Duration) -> Vec<Duration> {
        let store = Arc::new(Purges::default());
        *store.answers.lock().unwrap() = answers.into_iter().rev().collect();
        let begun = Instant::now();
        let _ = timeout(span, run(store.clone(), INTERVAL)).await;
        store.asked.lock().unwrap().iter().map(|asked| asked.duration_since(begun)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn backlog_goes_batch_by_batch_with_pauses() {
        let full = u64::from(BATCH);
        let asked = asked(vec![Ok(full), Ok(full), Ok(7)], INTERVAL * 2 + PAUSE * 3).await;
        assert_eq!(asked, [INTERVAL, INTERVAL + PAUSE, INTERVAL + PAUSE * 2, INTERVAL * 2 + PAUSE * 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_that_take_long_are_further_apart() {
        let takes = Duration::from_millis(30);
        let store = Arc::new(Purges { takes, ..Purges::default() });
        *store.answers.lock().unwrap() = (0..3).map(|_| Ok(u64::from(BATCH))).collect();
        let _ = timeout(INTERVAL + Duration::from_secs(1), run(store.clone(), INTERVAL)).await;
        let asked = store.asked.lock().unwrap().clone();
        let gaps: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [takes * 5; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_system_is_asked_less_and_less_often() {
        let asked = asked(vec![], INTERVAL * 100).await;
        let gaps: Vec<u32> =
            asked.windows(2).map(|pair| ((pair[1] - pair[0]).as_secs() / INTERVAL.as_secs()) as u32).collect();
        assert_eq!(gaps[..10], [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn panic_ends_the_round_and_not_the_sweeper() {
        let asked = asked(vec![Ok(PANICS), Ok(PANICS), Ok(1)], INTERVAL * 8).await;
        assert_eq!(asked, [INTERVAL, INTERVAL * 3, INTERVAL * 6, INTERVAL * 7]);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_ends_the_round_and_not_the_sweeper() {
        let full = u64::from(BATCH);
        let broken = || Err(StoreError::Unavailable("away".into()));
        let asked = asked(vec![Ok(full), broken(), broken(), Ok(0)], INTERVAL * 6).await;
        assert_eq!(asked, [INTERVAL, INTERVAL + PAUSE, INTERVAL * 2 + PAUSE, INTERVAL * 4 + PAUSE]);
    }
}
