//! Who waits, and how many flights are out.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use crate::Load;

pub(crate) struct Queue<Q, A, E> {
    flights_max: usize,
    load_max: Load,
    bytes: fn(&Q) -> usize,
    waiting: Mutex<Waiting<Q, A, E>>,
}

pub(crate) struct Caller<Q, A, E> {
    pub(crate) questions: Vec<Q>,
    pub(crate) reply: oneshot::Sender<Result<Vec<A>, E>>,
}

struct Waiting<Q, A, E> {
    callers: VecDeque<Caller<Q, A, E>>,
    flights: usize,
    /// Questions of those who wait.
    queued: usize,
    /// Questions of those who travel.
    aloft: usize,
}

/// What one flight is to carry.
pub(crate) struct Departure<Q, A, E> {
    pub(crate) callers: Vec<Caller<Q, A, E>>,
    pub(crate) questions: usize,
    /// Others wait and a flight is free: it is taken for them.
    pub(crate) is_another_free: bool,
}

/// So few questions travel together however many flights are free. Measured with two flights and 64 callers, in front of Postgres and of
/// SQLite: with shares from 8 the trips cost more than the idle time that they saved.
const SHARE_MIN: usize = 32;

// === impl Queue ===

impl<Q, A, E> Queue<Q, A, E> {
    pub(crate) fn new(flights_max: usize, load_max: Load, bytes: fn(&Q) -> usize) -> Self {
        let waiting = Mutex::new(Waiting { callers: VecDeque::new(), flights: 0, queued: 0, aloft: 0 });
        Self { flights_max, load_max, bytes, waiting }
    }

    /// Queues a caller; true when it is to start a flight itself.
    pub(crate) fn line_up(&self, caller: Caller<Q, A, E>) -> bool {
        let mut waiting = self.lock();
        waiting.queued += caller.questions.len();
        waiting.callers.push_back(caller);
        let is_free = waiting.flights < self.flights_max;
        waiting.flights += usize::from(is_free);
        is_free
    }

    /// The next load, or the end of the flight.
    pub(crate) fn next_load(&self) -> Option<Departure<Q, A, E>> {
        let mut waiting = self.lock();
        let share = (waiting.queued + waiting.aloft).div_ceil(self.flights_max).max(SHARE_MIN);
        let (mut callers, mut questions, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while let Some(next) = waiting.callers.front() {
            let size = next.questions.len();
            bytes = bytes.saturating_add(next.questions.iter().map(self.bytes).sum());
            // Callers are not parted: the one who fills the share comes along whole.
            let is_full = questions >= share;
            let fits = questions + size <= self.load_max.questions && bytes <= self.load_max.bytes;
            if (is_full || !fits) && !callers.is_empty() {
                break;
            }
            waiting.queued -= size;
            // One that has gone meanwhile starts no work.
            if let Some(caller) = waiting.callers.pop_front().filter(|caller| !caller.reply.is_closed()) {
                questions += size;
                callers.push(caller);
            }
        }
        if callers.is_empty() {
            waiting.flights -= 1;
            return None;
        }
        waiting.aloft += questions;
        let is_another_free = !waiting.callers.is_empty() && waiting.flights < self.flights_max;
        waiting.flights += usize::from(is_another_free);
        Some(Departure { callers, questions, is_another_free })
    }

    /// A load has been answered.
    pub(crate) fn landed(&self, questions: usize) {
        self.lock().aloft -= questions;
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().callers.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<Q, A, E>> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }
}
