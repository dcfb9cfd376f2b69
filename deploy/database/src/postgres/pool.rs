//! The pool: how it comes by connections, and which of them it lends again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Connect, Hook, HookError, Manager, ManagerConfig, Metrics, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, Error};
use tracing::debug;

use super::background::Background;
use super::connect::Hosts;
use super::line::Line;
use super::refusal::ConnectError;
use super::session::Generation;
use crate::Options;
use crate::error::chain;

/// A connection used this recently is taken for alive; one that slept longer is asked first.
const FRESH: Duration = Duration::from_secs(1);

/// How long a connection may take to answer that question.
const VERIFY: Duration = Duration::from_millis(500);

/// Distinct statements kept prepared per connection; a service has a few dozen.
const STATEMENTS: usize = 256;

/// Connects for the pool.
struct Primary {
    hosts: Arc<Hosts>,
    generation: Generation,
    background: Background,
    /// As many may be connecting as the pool may hold.
    greetings: Arc<Semaphore>,
    spares: Arc<Mutex<Vec<Spare>>>,
}

/// Connected for a caller who had gone by then.
struct Spare {
    line: Line,
    metrics: Metrics,
}

pub(super) fn pool(hosts: Arc<Hosts>, generation: Generation, background: Background, options: &Options) -> Pool {
    let size = options.pool_size.max(1);
    let primary = Primary {
        hosts,
        generation: generation.clone(),
        background,
        greetings: Arc::new(Semaphore::new(size)),
        spares: Arc::default(),
    };
    // The hosts have their own configurations; and the hook asks less often, and more, than the pool would.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_connect(Config::new(), primary, recycling);
    // Connecting and verifying are bounded here. The most recently used connection goes out first, so that the others
    // may rest instead of each being asked for a sign of life.
    let timeouts = Timeouts { wait: Some(options.pool_wait), create: None, recycle: None };
    let built = Pool::builder(manager)
        .max_size(size)
        .timeouts(timeouts)
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .pre_recycle(lent_again(generation))
        .build();
    built.expect("a pool with a runtime can have timeouts")
}

/// Waits for everything that was asked before, and makes sure that no transaction is open.
pub(super) async fn verify(client: &Client) -> Result<(), Error> {
    client.batch_execute("ROLLBACK").await
}

/// Decides which connections are lent again; the pool closes the others.
fn lent_again(generation: Generation) -> Hook {
    Hook::async_fn(move |client, metrics| {
        let generation = generation.clone();
        Box::pin(async move {
            if client.is_closed() || generation.is_over(metrics) {
                return Err(HookError::message("it was lost"));
            }
            if metrics.last_used() >= FRESH && !is_alive(client, metrics, &generation).await {
                return Err(HookError::message("it does not answer"));
            }
            if client.statement_cache.size() > STATEMENTS {
                // Only text that changes with its values gets here; starting over is as good as any order.
                client.statement_cache.clear();
            }
            Ok(())
        })
    })
}

/// Asks a connection that has slept for a sign of life.
async fn is_alive(client: &Client, metrics: &Metrics, generation: &Generation) -> bool {
    // Nothing is asked but an answer: a connection that lies here has no transaction open, or its lease would have cleaned it.
    match timeout(VERIFY, client.batch_execute("")).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => debug!(error = chain(&error), "a pooled connection is dead"),
        Err(_) => debug!("a pooled connection does not answer"),
    }
    generation.end(metrics);
    false
}

// === impl Primary ===

impl Primary {
    /// Connecting goes on when the caller gives up: where it takes longer than callers wait, none of them would ever
    /// get a connection otherwise, and the server would be kept busy with greetings.
    async fn line(&self) -> Result<Line, ConnectError> {
        let permit = self.greetings.clone().acquire_owned().await.expect("the semaphore is never closed");
        if let Some(line) = self.spare_line().await {
            return Ok(line);
        }
        let (hand_over, handed_over) = oneshot::channel();
        let (hosts, spares) = (self.hosts.clone(), self.spares.clone());
        self.background.run(async move {
            let line = hosts.connect(hosts.greeting_limit()).await;
            if let Err(Ok(line)) = hand_over.send(line) {
                lock(&spares).push(Spare { line, metrics: Metrics::default() });
            }
            drop(permit);
        });
        handed_over.await.unwrap_or_else(|_| Err(ConnectError { tries: Vec::new() }))
    }

    async fn spare_line(&self) -> Option<Line> {
        while let Some(Spare { line, metrics }) = self.spare() {
            let is_lost = line.client.is_closed() || self.generation.is_over(&metrics);
            if !is_lost && is_alive(&line.client, &metrics, &self.generation).await {
                return Some(line);
            }
        }
        None
    }

    fn spare(&self) -> Option<Spare> {
        lock(&self.spares).pop()
    }
}

impl Connect for Primary {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let connect = async {
            match self.line().await {
                Ok(line) => Ok(line.into_parts()),
                Err(error) => Err(error.into_driver_error().await),
            }
        };
        connect.boxed()
    }
}

// === helpers ===

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Pushing and popping leave nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
