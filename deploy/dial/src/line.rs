//! One connection to one address, and what is known of it.

use hyper::client::conn::http2::SendRequest;
use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};
use tonic::body::Body;

pub(crate) type Sender = SendRequest<Body>;

/// Calls wait and nothing is heard: after this time others are preferred.
const QUIET: Duration = Duration::from_secs(1);

/// How long others are preferred to a replica that has answered UNAVAILABLE. It answers at once, so it would draw every call otherwise.
const SOUR: Duration = Duration::from_secs(1);

/// The longest pause between two attempts at a replica that nobody asks for.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// One connection to one replica: up, or being made.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    state: Mutex<State>,
    is_up: AtomicBool,
    in_flight: AtomicUsize,
    /// Ends the pause before the next attempt.
    pub(crate) wanted: Notify,
    /// Told when the connection is gone.
    pub(crate) down: Notify,
}

struct State {
    sender: Option<Sender>,
    /// Which connection it is: what is told about an earlier one does not count.
    generation: u64,
    /// When an answer last came.
    heard: Option<Instant>,
    /// Since when calls wait without a word; none while none waits.
    waiting_since: Option<Instant>,
    sour_until: Option<Instant>,
    /// Failures since the last answer to a real call.
    strikes: u32,
    /// When the last attempt at connecting failed, and how.
    failed: Option<(Instant, String)>,
}

/// A call on its way.
pub(crate) struct Flight<'l> {
    line: &'l Line,
}

// === impl Line ===

impl Line {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let state = State {
            sender: None,
            generation: 0,
            heard: None,
            waiting_since: None,
            sour_until: None,
            strikes: 0,
            failed: None,
        };
        Self {
            address,
            state: Mutex::new(state),
            is_up: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            wanted: Notify::new(),
            down: Notify::new(),
        }
    }

    /// How little one would like to use it; none when it is down.
    pub(crate) fn burden(&self, now: Instant) -> Option<(bool, usize)> {
        if !self.is_up() {
            return None;
        }
        let state = self.state();
        let is_quiet = state.waiting_since.is_some_and(|since| now.saturating_duration_since(since) > QUIET);
        let is_sour = state.sour_until.is_some_and(|until| now < until);
        Some((is_quiet || is_sour, self.in_flight.load(Ordering::Relaxed)))
    }

    /// The connection, while it is up.
    pub(crate) fn sender(&self) -> Option<(Sender, u64)> {
        let state = self.state();
        state.sender.clone().map(|sender| (sender, state.generation))
    }

    /// A probed connection takes the place of the former; its number.
    pub(crate) fn connected(&self, sender: Sender) -> u64 {
        let mut state = self.state();
        state.generation += 1;
        state.sender = Some(sender);
        state.waiting_since = None;
        self.is_up.store(true, Ordering::Release);
        state.generation
    }

    /// The connection is gone. True when it was the present one.
    pub(crate) fn lost(&self, generation: u64) -> bool {
        let mut state = self.state();
        let is_present = state.generation == generation && state.sender.is_some();
        if is_present {
            // Until an answer comes: a connection that breaks again and again is made anew less and less often.
            state.strikes += 1;
            self.hang_up(&mut state);
        }
        is_present
    }

    /// A caller has given up on a call that began then. True when nothing at all was heard since, and the line is left out from now on.
    pub(crate) fn strike(&self, began: Instant) -> bool {
        let mut state = self.state();
        let is_silent = state.sender.is_some() && state.heard.is_none_or(|heard| heard < began);
        if is_silent {
            state.strikes += 1;
            self.hang_up(&mut state);
        }
        is_silent
    }

    /// The address is gone.
    pub(crate) fn retire(&self) {
        self.hang_up(&mut self.state());
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// An attempt has failed.
    pub(crate) fn failed(&self, why: String) {
        let mut state = self.state();
        state.strikes += 1;
        state.failed = Some((Instant::now(), why));
    }

    /// Why an attempt that ended after `began` has failed.
    pub(crate) fn failed_since(&self, began: Instant) -> Option<String> {
        self.state().failed.as_ref().filter(|(at, _)| *at >= began).map(|(_, why)| why.clone())
    }

    /// How long to leave it alone.
    pub(crate) fn pause(&self) -> Duration {
        match self.state().strikes {
            0 | 1 => Duration::ZERO,
            strikes => (PAUSE_MIN * (1 << (strikes - 2).min(8))).min(PAUSE_MAX),
        }
    }

    pub(crate) fn begin(&self) -> Flight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.state().waiting_since.get_or_insert_with(Instant::now);
        Flight { line: self }
    }

    /// The other side said something about a call.
    fn heard(&self, is_unavailable: bool) {
        let now = Instant::now();
        let mut state = self.state();
        state.heard = Some(now);
        state.waiting_since = Some(now);
        state.strikes = 0;
        state.sour_until = is_unavailable.then(|| now + SOUR);
    }

    fn hang_up(&self, state: &mut State) {
        self.is_up.store(false, Ordering::Release);
        state.sender = None;
        state.waiting_since = None;
        self.down.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

// === impl Flight ===

impl Flight<'_> {
    pub(crate) fn answered(&self, is_unavailable: bool) {
        self.line.heard(is_unavailable);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.line.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.line.state().waiting_since = None;
        }
    }
}
