//! Whether the machine keeps up. When the system's processes wait for a processor much longer than they run on one, what they
//! then fail to answer in time tells of the machine and not of them.

use std::{collections::HashMap, time::Duration};

use tokio::time::{Instant, sleep};

use crate::edge::{CampaignClock, WindowId, Windows};

/// One judgement.
const BEAT: Duration = Duration::from_secs(1);

/// A beat that comes so late is one at which the machine stood still.
const STANDSTILL: Duration = Duration::from_millis(400);

/// Waiting so many times longer than running is too long. With the machine to itself a campaign stays well below one.
const WAITING_MAX: u64 = 5;

/// What hardly runs at all may well wait a little.
const WAITED_LEAST: Duration = Duration::from_millis(500);

/// What was under way may still feel it for so long.
const AFTERMATH_MS: u64 = 4_000;

/// The fault of such a window. It is nobody's deed, and the report counts it apart.
pub const STARVED: &str = "starved-machine";

/// Judges one second after the other.
pub struct Heartbeat {
    clock: CampaignClock,
    windows: Windows,
    before: Threads,
    last: Option<(WindowId, u64)>,
}

/// How long each thread of some processes has run, and has waited to run, in nanoseconds.
type Threads = HashMap<String, (u64, u64)>;

// === impl Heartbeat ===

impl Heartbeat {
    /// One that has not beaten yet.
    pub fn new(clock: CampaignClock, windows: Windows) -> Self {
        Self { clock, windows, before: Threads::new(), last: None }
    }

    /// One beat, over the processes that `pids` names at its end.
    pub async fn beat(&mut self, pids: impl FnOnce() -> Vec<u32>) {
        let (begun, from_ms) = (Instant::now(), self.clock.now_ms());
        sleep(BEAT).await;
        let late = begun.elapsed().saturating_sub(BEAT);
        let now = threads(&pids());
        // Threads come and go: only those that were there all the time are compared.
        let both = now.iter().filter_map(|(thread, now)| Some((now, self.before.get(thread)?)));
        let (ran, waited) = both.fold((0, 0), |(ran, waited), (now, before)| {
            (ran + now.0.saturating_sub(before.0), waited + now.1.saturating_sub(before.1))
        });
        self.before = now;
        let is_starved = Duration::from_nanos(waited) >= WAITED_LEAST && waited >= ran.saturating_mul(WAITING_MAX);
        if is_starved || late >= STANDSTILL {
            tracing::debug!(at_ms = from_ms, ran, waited, ?late, "the machine does not keep up");
            self.note(from_ms);
        }
    }

    fn note(&mut self, from_ms: u64) {
        let until_ms = self.clock.now_ms() + AFTERMATH_MS;
        let window = match self.last {
            // It goes on: one window, not many.
            Some((window, end)) if end >= from_ms => window,
            _ => self.windows.begin(STARVED, "machine", from_ms.saturating_sub(AFTERMATH_MS)),
        };
        self.windows.end(window, until_ms);
        self.last = Some((window, until_ms));
    }
}

// === helpers ===

fn threads(pids: &[u32]) -> Threads {
    let directories = pids.iter().flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let read = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        Some((thread.path().display().to_string(), (numbers.next()??, numbers.next()??)))
    };
    directories.flatten().filter_map(read).collect()
}
