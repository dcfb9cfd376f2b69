//! Where log lines go: to stderr, by a thread of its own, so that whoever logs never waits for whoever reads.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};
use tokio::time::Instant;
use tracing_subscriber::fmt::MakeWriter;

/// What is not written yet at most, in the writer's hands too; more is left out, and counted.
const WAITING_MAX: usize = 8 * 1024 * 1024;

/// After a write, what comes within this time is written together: the first line of all is never held up, and a thousand a second
/// do not wake the writer a thousand times.
const GATHERING: Duration = Duration::from_millis(5);

/// Takes lines. Cheap to clone; every clone is the same road.
#[derive(Clone)]
pub(super) struct Lines {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// What the writer has taken and not written yet.
    in_hand: usize,
}

// === impl Lines ===

impl Lines {
    /// Begins to write to `sink`.
    pub(super) fn to(mut sink: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), arrived: Condvar::new(), written: Condvar::new() });
        let writing = shared.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            loop {
                let bytes = writing.next();
                // Nobody is left to be told.
                let _ = sink.write_all(&bytes).and_then(|()| sink.flush());
                writing.done();
                thread::sleep(GATHERING);
            }
        })?;
        Ok(Self { shared })
    }

    /// Waits until everything is written, no longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut waiting = self.shared.lock();
        while waiting.in_hand > 0 || !waiting.bytes.is_empty() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            let woken = self.shared.written.wait_timeout(waiting, left);
            waiting = woken.expect("nothing panics while it holds this lock").0;
        }
    }
}

impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.shared.lock();
        if waiting.in_hand + waiting.bytes.len() + line.len() > WAITING_MAX {
            drop(waiting);
            metrics::counter!("log_lines_dropped_total").increment(1);
            return Ok(line.len());
        }
        let is_first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if is_first {
            self.shared.arrived.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = &'w Lines;

    fn make_writer(&'w self) -> Self::Writer {
        self
    }
}

// === impl Shared ===

impl Shared {
    fn next(&self) -> Vec<u8> {
        let mut waiting = self.lock();
        while waiting.bytes.is_empty() {
            waiting = self.arrived.wait(waiting).expect("nothing panics while it holds this lock");
        }
        waiting.in_hand = waiting.bytes.len();
        std::mem::take(&mut waiting.bytes)
    }

    fn done(&self) {
        self.lock().in_hand = 0;
        self.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Writes nothing before it is told to.
    struct Slow {
        may_write: mpsc::Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.may_write.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_does_not_wait_and_what_is_too_much_is_left_out() {
        let (allow, may_write) = mpsc::channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let lines = Lines::to(Slow { may_write, written: written.clone() }).unwrap();
        let line = vec![b'x'; WAITING_MAX / 4];
        for _ in 0..20 {
            (&lines).write_all(&line).unwrap();
        }
        lines.flush(Duration::from_millis(1));
        assert!(written.lock().unwrap().is_empty());
        drop(allow);
        lines.flush(Duration::from_secs(30));
        let length = written.lock().unwrap().len();
        assert!(length >= line.len() && length <= WAITING_MAX, "{length}");
    }
}
