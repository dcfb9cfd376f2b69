//! One transaction on Postgres, tried again where that helps and never where it harms.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::Postgres;
use super::session::Settings;
use crate::failure::{Class, Failure};
use crate::tx::Engine;
use crate::{DatabaseError, Tx};

/// Attempts after losing against concurrent transactions, within the time of one statement.
const CONFLICTS: u32 = 10;

/// Attempts after a unique key was taken: one look at what took it, and one more in case that went away again.
const TAKEN: u32 = 2;

/// Attempts after the connection was lost; the pool replaces all that are as old as a lost one at the first.
const LOST: u32 = 2;

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write, at READ COMMITTED.
    Write,
    /// Read, over one snapshot.
    Read,
}

/// Counts attempts.
struct Patience {
    deadline: Instant,
    conflicts: u32,
    taken: u32,
    lost: u32,
}

// === impl Postgres ===

impl Postgres {
    pub(crate) async fn transact<T, E>(
        &self,
        name: &'static str,
        access: Access,
        work: impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync,
    ) -> Result<T, E>
    where
        T: Send,
        E: From<DatabaseError> + Send,
    {
        let mut patience = Patience::new(self.statement_timeout());
        loop {
            let (failure, told) = match self.attempt(name, access, &work).await {
                Ok(result) => return result,
                Err(failed) => failed,
            };
            match patience.pause(failure.class) {
                Some(pause) => {
                    debug!(transaction = name, class = ?failure.class, ?pause, "tries the transaction again");
                    sleep(pause).await;
                }
                // The work may have dressed a conflict up as an error of its own; callers get the plain one.
                None if failure.class == Class::Conflict => return Err(DatabaseError::Conflict.into()),
                None => return Err(told.unwrap_or_else(|| failure.error.into())),
            }
        }
    }

    /// One attempt: the work's own answer, or the failure that ended the transaction with what the work made of it.
    async fn attempt<T, E>(
        &self,
        name: &'static str,
        access: Access,
        work: &(impl for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<T, E>> + Send + Sync),
    ) -> Result<Result<T, E>, (Failure, Option<E>)>
    where
        T: Send,
        E: From<DatabaseError> + Send,
    {
        let mut lease = match self.lease().await {
            Ok(lease) => lease,
            Err(error) => return Ok(Err(error.into())),
        };
        lease.begin_transaction();
        let now = lease.begin(&begin(name, access, lease.settings())).await.map_err(|failure| (failure, None))?;
        let now = now.saturating_add(self.clock().offset_micros());
        let mut tx = Tx::new(name, now, Engine::Postgres(&lease));
        let result = work(&mut tx).await;
        let failure = tx.end(result.is_ok());
        match (&result, &failure, access) {
            (Ok(_), None, Access::Write) => lease.commit().await.map_err(|failure| (failure, None))?,
            (Ok(_), None, Access::Read) => lease.send("COMMIT"),
            _ => lease.send("ROLLBACK"),
        }
        lease.end_transaction();
        match failure {
            None => Ok(result),
            Some(failure) => Err((failure, result.err())),
        }
    }
}

/// One message for the beginning and the clock. Behind a pooler the bounds travel along, since the server that answers
/// may be another one every time.
fn begin(name: &str, access: Access, settings: &Settings) -> String {
    debug_assert!(!name.contains("*/"), "the name of a transaction is put into a comment");
    let mode = match access {
        Access::Write => "ISOLATION LEVEL READ COMMITTED",
        Access::Read => "ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    };
    let bounds = if settings.is_pooled {
        let (statement, idle) = (settings.statement_timeout, settings.idle_in_transaction_timeout);
        let (statement, idle) = (statement.as_millis(), idle.as_millis());
        format!("SET LOCAL statement_timeout = {statement}; SET LOCAL idle_in_transaction_session_timeout = {idle}; ")
    } else {
        String::new()
    };
    format!("BEGIN /* {name} */ {mode}; {bounds}SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")
}

// === impl Patience ===

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, conflicts: 0, taken: 0, lost: 0 }
    }

    /// How long to wait before another attempt; `None` when there shall be none.
    fn pause(&mut self, class: Class) -> Option<Duration> {
        let (count, max) = match class {
            Class::Conflict => (&mut self.conflicts, CONFLICTS),
            Class::Taken => (&mut self.taken, TAKEN),
            Class::Lost => (&mut self.lost, LOST),
            Class::Final => return None,
        };
        *count += 1;
        if *count > max || Instant::now() >= self.deadline {
            return None;
        }
        Some(if class == Class::Conflict { jittered(*count) } else { Duration::ZERO })
    }
}

/// Doubles with every attempt, and is spread so that two losers do not meet again.
fn jittered(attempt: u32) -> Duration {
    let full = Duration::from_millis(4).saturating_mul(1 << attempt.min(10)).min(PAUSE_MAX);
    // The standard library's hasher is seeded at random, which is all the chance that a pause needs.
    let chance = RandomState::new().hash_one(attempt) % 1024;
    full / 2 + full.mul_f64(chance as f64 / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_bounds() {
        for attempt in 1..=CONFLICTS {
            let pause = jittered(attempt);
            assert!(pause >= Duration::from_millis(4) && pause <= PAUSE_MAX, "{attempt}: {pause:?}");
        }
    }

    #[test]
    fn a_pooled_begin_carries_its_bounds() {
        let bounds = |is_pooled| Settings {
            is_pooled,
            statement_timeout: Duration::from_secs(5),
            idle_in_transaction_timeout: Duration::from_millis(2500),
        };
        let direct = begin("pay", Access::Write, &bounds(false));
        assert!(direct.starts_with("BEGIN /* pay */ ISOLATION LEVEL READ COMMITTED; SELECT"), "{direct}");
        let pooled = begin("pay", Access::Read, &bounds(true));
        assert!(pooled.contains("READ ONLY; SET LOCAL statement_timeout = 5000; SET LOCAL idle_in"), "{pooled}");
        assert!(pooled.contains("timeout = 2500; SELECT"), "{pooled}");
    }
}
