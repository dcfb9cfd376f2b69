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
}

// === impl Queue ===

impl<Q, A, E> Queue<Q, A, E> {
    pub(crate) fn new(flights_max: usize, load_max: Load, bytes: fn(&Q) -> usize) -> Self {
        let waiting = Mutex::new(Waiting { callers: VecDeque::new(), flights: 0 });
        Self { flights_max, load_max, bytes, waiting }
    }

    /// Queues a caller; true when it is to start a flight itself.
    pub(crate) fn line_up(&self, caller: Caller<Q, A, E>) -> bool {
        let mut waiting = self.lock();
        waiting.callers.push_back(caller);
        let is_free = waiting.flights < self.flights_max;
        waiting.flights += usize::from(is_free);
        is_free
    }

    /// The next load, or the end of the flight.
    pub(crate) fn next_load(&self) -> Option<Vec<Caller<Q, A, E>>> {
        let mut waiting = self.lock();
        let (mut load, mut questions, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while let Some(next) = waiting.callers.front() {
            questions += next.questions.len();
            bytes = bytes.saturating_add(next.questions.iter().map(self.bytes).sum());
            let fits = questions <= self.load_max.questions && bytes <= self.load_max.bytes;
            if !fits && !load.is_empty() {
                break;
            }
            // One that has gone meanwhile starts no work.
            load.extend(waiting.callers.pop_front().filter(|caller| !caller.reply.is_closed()));
        }
        if load.is_empty() {
            waiting.flights -= 1;
            return None;
        }
        Some(load)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().callers.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<Q, A, E>> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }
}
