//! Whether the machine keeps up: when this process cannot run, neither can those it watches, and what they then fail to
//! answer in time tells nothing of them.

use std::time::Duration;

use chassis::tasks::Tasks;
use tokio::time::{Instant, sleep};

use crate::edge::{CampaignClock, Windows};

const BEAT: Duration = Duration::from_millis(50);

/// A beat that comes so late is one at which the machine stood still.
const LATE: Duration = Duration::from_millis(400);

/// What stood still may be felt for so long: the requests that were under way.
const AFTERMATH_MS: u64 = 3_000;

/// The fault of such a window. It is nobody's deed, and the report counts it apart.
pub const STARVED: &str = "starved-machine";

/// Listens for the rest of the campaign.
pub fn listen(tasks: &Tasks, clock: CampaignClock, windows: Windows) {
    tasks.spawn("heartbeat", async move {
        loop {
            let begun = Instant::now();
            let from_ms = clock.now_ms();
            sleep(BEAT).await;
            let late = begun.elapsed().saturating_sub(BEAT);
            if late > LATE {
                tracing::warn!(at_ms = from_ms, late_ms = late.as_millis() as u64, "the machine stood still");
                let window = windows.begin(STARVED, "machine", from_ms.saturating_sub(AFTERMATH_MS));
                windows.end(window, clock.now_ms() + AFTERMATH_MS);
            }
        }
    });
}
