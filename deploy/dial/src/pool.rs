//! Every replica of a service, and which of them gets the next call.

use crate::{
    Place, Settings, keep,
    line::{Line, Sender},
};
use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc, Once, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tonic::Status;

/// A name that resolves to more than this is a mistake.
const REPLICAS_MAX: usize = 64;

pub(crate) struct Pool {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    /// Replica by replica and round again, so that neighbours are of different replicas.
    lines: RwLock<Arc<[Arc<Line>]>>,
    next: AtomicUsize,
    /// The tasks that keep the lines begin with the first call.
    started: Once,
    /// Counts what happens to lines.
    changes: watch::Sender<u64>,
    /// Dropped with the pool, which ends its tasks.
    alive: watch::Sender<()>,
    /// Asks for the name to be resolved again.
    pub(crate) resolve: Arc<Notify>,
    /// When the name last could not be resolved, and why.
    unresolved: RwLock<Option<(Instant, String)>>,
}

/// A connection for one call.
pub(crate) struct Picked {
    pub(crate) line: Arc<Line>,
    pub(crate) sender: Sender,
    pub(crate) generation: u64,
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(place: Place, settings: Settings) -> Self {
        Self {
            place,
            settings,
            lines: RwLock::new(Arc::new([])),
            next: AtomicUsize::new(0),
            started: Once::new(),
            changes: watch::Sender::new(0),
            alive: watch::Sender::new(()),
            resolve: Arc::new(Notify::new()),
            unresolved: RwLock::new(None),
        }
    }

    /// A connection for a call, as soon as there is one; an error when every attempt that ended while the call waited has failed.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Picked, Status> {
        if let Some(picked) = self.pick() {
            return Ok(picked);
        }
        self.started.call_once(|| keep::start(self));
        let began = Instant::now();
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(picked) = self.pick() {
                return Ok(picked);
            }
            if let Some(why) = self.hopeless_since(began) {
                return Err(Status::unavailable(format!(
                    "no replica of {} can be reached: {why}",
                    self.place.authority
                )));
            }
            self.lines().iter().for_each(|line| line.wanted.notify_one());
            self.resolve.notify_one();
            // The pool lives as long as this call, so the other half does too.
            let _ = changes.changed().await;
        }
    }

    /// The line that is least busy; beginning at the next in turn, so that they all get calls when none is busy.
    fn pick(&self) -> Option<Picked> {
        let (lines, now) = (self.lines(), Instant::now());
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..lines.len()).map(|step| &lines[(first + step) % lines.len()]);
        let mut best: Option<((bool, usize), &Arc<Line>)> = None;
        for line in in_turn {
            if let Some(burden) = line.burden(now)
                && best.as_ref().is_none_or(|(least, _)| burden < *least)
            {
                best = Some((burden, line));
            }
        }
        let (_, line) = best?;
        let (sender, generation) = line.sender()?;
        Some(Picked { line: Arc::clone(line), sender, generation })
    }

    fn hopeless_since(&self, began: Instant) -> Option<String> {
        let lines = self.lines();
        if lines.is_empty() {
            let unresolved = self.unresolved.read().expect("nothing panics while it holds this lock");
            return unresolved.as_ref().filter(|(at, _)| *at >= began).map(|(_, why)| why.clone());
        }
        let mut last = None;
        for line in lines.iter() {
            let why = line.failed_since(began)?;
            last = Some(format!("{}: {why}", line.address));
        }
        last
    }

    /// A caller has given up on a call to `address` that began then. All that is as silent as the line it took is left out.
    pub(crate) fn strike(&self, address: SocketAddr, began: Instant) {
        let silent = self.lines().iter().filter(|line| line.address == address && line.strike(began)).count();
        if silent > 0 {
            tracing::warn!(%address, service = %self.place.authority, "a replica does not answer: no calls go there until it does");
            self.changed();
        }
    }

    pub(crate) fn lines(&self) -> Arc<[Arc<Line>]> {
        self.lines.read().expect("nothing panics while it holds this lock").clone()
    }

    /// Something happened to a line.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Changes, by an error, when the pool is dropped.
    pub(crate) fn end(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// What the name resolves to now. Lines to addresses that are gone take no more calls; those under way on them end as they may. Brings
    /// the lines that are new.
    pub(crate) fn resolved(&self, addresses: Vec<SocketAddr>) -> Vec<Arc<Line>> {
        let mut seen = HashSet::new();
        let addresses: Vec<_> = addresses.into_iter().filter(|it| seen.insert(*it)).take(REPLICAS_MAX).collect();
        let mut lines = self.lines.write().expect("nothing panics while it holds this lock");
        let (mut next, mut new): (Vec<Arc<Line>>, Vec<Arc<Line>>) = (Vec::new(), Vec::new());
        for turn in 0..self.settings.connections.max(1) {
            for address in &addresses {
                let known = lines.iter().filter(|line| line.address == *address).nth(turn).cloned();
                next.push(known.unwrap_or_else(|| {
                    let line = Arc::new(Line::new(*address));
                    new.push(line.clone());
                    line
                }));
            }
        }
        if !new.is_empty() || next.len() != lines.len() {
            tracing::debug!(service = %self.place.authority, ?addresses, "the replicas have changed");
        }
        let gone = std::mem::replace(&mut *lines, next.into());
        gone.iter().filter(|line| !lines.iter().any(|own| Arc::ptr_eq(own, line))).for_each(|line| line.retire());
        drop(lines);
        self.changed();
        new
    }

    /// The name does not resolve; what it resolved to before stands.
    pub(crate) fn not_resolved(&self, why: String) {
        *self.unresolved.write().expect("nothing panics while it holds this lock") = Some((Instant::now(), why));
        self.changed();
    }

    /// Whether calls may still be sent over this line.
    pub(crate) fn has(&self, line: &Arc<Line>) -> bool {
        self.lines().iter().any(|own| Arc::ptr_eq(own, line))
    }
}
