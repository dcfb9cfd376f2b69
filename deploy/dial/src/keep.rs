//! The tasks behind a pool: one resolves the name, one for each line makes its connection anew whenever it is gone.

use crate::{connect, line::Line, pool::Pool};
use std::{
    future::{Future, pending},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{Instrument, Span};

/// How often a name is resolved again: a new replica gets calls within this time.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// How long the resolver may take.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// The shortest time between two questions to the resolver, and between two attempts at one address, however many calls wait.
const RESOLVE_PAUSE: Duration = Duration::from_millis(500);
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn start(pool: &Arc<Pool>) {
    spawn(resolve(Arc::downgrade(pool), pool.resolve.clone(), pool.end()));
}

/// It belongs to nobody's trace.
#[allow(clippy::disallowed_methods, reason = "ends by itself when the last clone of its channel is dropped")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task.instrument(Span::none())));
}

/// Resolves the name, now and then again, and has every new line kept.
async fn resolve(pool: Weak<Pool>, wanted: Arc<Notify>, mut end: watch::Receiver<()>) {
    loop {
        let Some(asked) = pool.upgrade().map(|pool| {
            let (host, resolver) = (pool.place.host.clone(), pool.settings.resolver.clone());
            resolver.resolve(host, pool.place.port)
        }) else {
            return;
        };
        let found = timeout(RESOLVE_LIMIT, asked).await;
        let Some(alive) = pool.upgrade() else { return };
        match found {
            Ok(Ok(addresses)) if !addresses.is_empty() => {
                for line in alive.resolved(addresses) {
                    spawn(keep(pool.clone(), line, alive.end()));
                }
            }
            Ok(Ok(_)) => alive.not_resolved("its name has no address".to_owned()),
            Ok(Err(error)) => alive.not_resolved(format!("its name cannot be resolved ({error})")),
            Err(_) => alive.not_resolved("the resolver does not answer".to_owned()),
        }
        if !alive.settings.resolver.may_change(&alive.place.host) && !alive.lines().is_empty() {
            return;
        }
        drop(alive);
        if pause(&mut end, RESOLVE_PAUSE, None).await.is_none()
            || pause(&mut end, jittered(RESOLVE_EVERY), Some(&wanted)).await.is_none()
        {
            return;
        }
    }
}

/// Makes the connection of a line, waits until it is gone, makes it again; until the address is gone or the pool.
async fn keep(pool: Weak<Pool>, line: Arc<Line>, mut end: watch::Receiver<()>) {
    loop {
        if pause(&mut end, jittered(line.pause()), Some(&line.wanted)).await.is_none() {
            return;
        }
        let Some(alive) = pool.upgrade().filter(|pool| pool.has(&line)) else { return };
        // The number of the connection, for its driver: sent when it has one.
        let (told, number) = oneshot::channel();
        let of_driver = (line.clone(), pool.clone(), number);
        let attempt = connect::connect(line.address, &alive.place, &alive.settings, |driver| {
            spawn(drive(driver, of_driver));
        });
        let (address, service) = (line.address, &alive.place.authority);
        match attempt.await {
            Ok(sender) => {
                tracing::debug!(%address, %service, "connected");
                let _ = told.send(line.connected(sender));
            }
            Err(why) => {
                tracing::debug!(%address, %service, why, "cannot connect");
                line.failed(why);
            }
        }
        alive.changed();
        drop(alive);
        if until_down(&line, &mut end).await.is_none() || pause(&mut end, ATTEMPT_PAUSE, None).await.is_none() {
            return;
        }
    }
}

/// Runs a connection, and says when it is gone.
async fn drive(driver: connect::Driver, (line, pool, number): (Arc<Line>, Weak<Pool>, oneshot::Receiver<u64>)) {
    driver.await;
    // None: it ended before it was any good.
    let Ok(number) = number.await else { return };
    if line.lost(number)
        && let Some(pool) = pool.upgrade()
    {
        tracing::debug!(address = %line.address, service = %pool.place.authority, "a connection has ended");
        pool.changed();
    }
}

/// None when the pool is gone.
async fn until_down(line: &Line, end: &mut watch::Receiver<()>) -> Option<()> {
    while line.is_up() {
        tokio::select! {
            () = line.down.notified() => {}
            // Nothing is ever sent: it is over when the pool is dropped.
            _ = end.changed() => return None,
        }
    }
    Some(())
}

/// Waits, or less when `wanted` is notified. None when the pool is gone.
async fn pause(end: &mut watch::Receiver<()>, time: Duration, wanted: Option<&Notify>) -> Option<()> {
    let wanted = async {
        match wanted {
            Some(wanted) => wanted.notified().await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = sleep(time) => Some(()),
        () = wanted => Some(()),
        _ = end.changed() => None,
    }
}

/// Between three quarters and five quarters, so that those who failed together do not come back together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(time) as u32;
    time.mul_f64(0.75 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}
