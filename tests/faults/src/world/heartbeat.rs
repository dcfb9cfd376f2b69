//! Whether the machine keeps up. When the system's processes wait for a processor much longer than they run on one, what they
//! then fail to answer in time tells of the machine and not of them.

use std::time::Duration;

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
    before: Scheduled,
    last: Option<(WindowId, u64)>,
}

/// How long some processes have run, and have waited to run, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Scheduled {
    ran: u64,
    waited: u64,
}

// === impl Heartbeat ===

impl Heartbeat {
    /// One that has not beaten yet.
    pub fn new(clock: CampaignClock, windows: Windows) -> Self {
        Self { clock, windows, before: Scheduled::default(), last: None }
    }

    /// One beat, over the processes that `pids` names at its end.
    pub async fn beat(&mut self, pids: impl FnOnce() -> Vec<u32>) {
        let (begun, from_ms) = (Instant::now(), self.clock.now_ms());
        sleep(BEAT).await;
        let late = begun.elapsed().saturating_sub(BEAT);
        let now = Scheduled::of(&pids());
        // A process that was started anew begins at zero.
        let (ran, waited) = (now.ran.saturating_sub(self.before.ran), now.waited.saturating_sub(self.before.waited));
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

// === impl Scheduled ===

impl Scheduled {
    fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
        let texts =
            threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
        texts.fold(Self::default(), |sum, text| {
            let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
            let (ran, waited) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            Self { ran: sum.ran + ran, waited: sum.waited + waited }
        })
    }
}
