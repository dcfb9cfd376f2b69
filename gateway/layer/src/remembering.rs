//! Answers that were replayed once, kept in memory: a stored answer never changes, so a repeat needs nobody else.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use idem_core::{AttemptId, FencingToken, Fingerprint, LeaseDuration, OperationId, Response};
use moka::sync::Cache;
use tokio::time::Instant;

use crate::ports::{Backend, BackendError, Finished, KeyId, Reclaimed, Replay, ReserveCall, Reserved};

/// The store judges the retention exactly; a copy is dropped this much sooner, so that it never outlives the original.
const EARLIER: Duration = Duration::from_secs(1);
/// A copy, its key and its place in the cache, without headers and body.
const ENTRY_BYTES: usize = 768;

/// Time that passes as it does for the store, counted from any beginning. Nobody's clock is compared with another's: the store says
/// how long an answer is good for, and this counts it down.
#[derive(Clone)]
pub struct Pace(Arc<dyn Fn() -> Duration + Send + Sync>);

/// A backend that gives the answers that it has seen again by itself, to the same request of the same scope.
pub struct Remembering<B> {
    backend: B,
    kept: Cache<KeyId, Arc<Copy>>,
    bytes: u64,
    pace: Pace,
}

struct Copy {
    fingerprint: Fingerprint,
    replay: Replay,
    until: Duration,
}

// === impl Pace ===

impl Pace {
    /// As this process's own clock runs.
    pub fn own() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }

    /// As `elapsed` says, which never goes back. For tests that move the store's clock.
    pub fn new(elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(elapsed))
    }

    fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::own()
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").finish_non_exhaustive()
    }
}

// === impl Remembering ===

impl<B: Backend> Remembering<B> {
    /// Before `backend`, with about `bytes` of answers.
    pub fn new(backend: B, bytes: u64, pace: Pace) -> Self {
        let kept = Cache::builder().max_capacity(bytes).weigher(|_: &KeyId, copy: &Arc<Copy>| copy.weight()).build();
        Self { backend, kept, bytes, pace }
    }

    /// Keeps an answer that was asked for at `asked`: what it took to come counts against it.
    fn keep(&self, key: &KeyId, fingerprint: Fingerprint, replay: &Replay, asked: Duration) {
        let Some(good_for) = replay.expires_in.checked_sub(EARLIER) else { return };
        let copy = Copy { fingerprint, replay: replay.clone(), until: asked + good_for };
        // One that fills the whole memory would only push the others out.
        if u64::from(copy.weight()) <= self.bytes {
            self.kept.insert(key.clone(), Arc::new(copy));
        }
    }
}

#[async_trait]
impl<B: Backend> Backend for Remembering<B> {
    fn recall(&self, key: &KeyId, fingerprint: &Fingerprint) -> Option<Reserved> {
        let copy = self.kept.get(key)?;
        if self.pace.now() >= copy.until {
            self.kept.invalidate(key);
            return None;
        }
        // What the store would say: a key is bound to its request as long as its answer is kept.
        Some(if copy.fingerprint == *fingerprint { Reserved::Replay(copy.replay.clone()) } else { Reserved::Mismatch })
    }

    async fn reserve(&self, call: ReserveCall, deadline: Instant) -> Result<Reserved, BackendError> {
        let (key, fingerprint, asked) = (call.key.clone(), call.fingerprint, self.pace.now());
        let reserved = self.backend.reserve(call, deadline).await?;
        if let Reserved::Replay(replay) = &reserved {
            self.keep(&key, fingerprint, replay, asked);
        }
        Ok(reserved)
    }

    async fn reclaim(
        &self,
        key: &KeyId,
        seen: (OperationId, FencingToken),
        attempt_id: AttemptId,
        lease: LeaseDuration,
        deadline: Instant,
    ) -> Result<Reclaimed, BackendError> {
        self.backend.reclaim(key, seen, attempt_id, lease, deadline).await
    }

    async fn complete(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        response: Response,
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        self.backend.complete(key, held, response, deadline).await
    }

    async fn release(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        self.backend.release(key, held, deadline).await
    }

    async fn abandon(
        &self,
        key: &KeyId,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Finished, BackendError> {
        self.backend.abandon(key, held, deadline).await
    }
}

// === impl Copy ===

impl Copy {
    fn weight(&self) -> u32 {
        let response = &self.replay.response;
        let headers: usize = response.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        u32::try_from(ENTRY_BYTES + headers + response.body().len()).unwrap_or(u32::MAX)
    }
}
