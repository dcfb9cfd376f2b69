//! When requests are sent: as soon as the last was answered, or at moments that were fixed before.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Every session asks again as soon as it was answered.
    Closed,
    /// So many a second, whether or not answers come. Latency counts from the moment at which a request should have been sent:
    /// one that had to wait for a free session has waited all the same.
    Open(f64),
}

/// How long, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When requests are sent.
    pub pace: Pace,
    /// Not counted, before what is.
    pub warm_up: Duration,
    /// Counted.
    pub length: Duration,
}

/// Tells each moment of the schedule when it has come, from a thread of its own: the timers of a runtime are too coarse.
pub fn arrivals(rate: f64, start: Instant, end: Instant) -> mpsc::UnboundedReceiver<Instant> {
    let (moments, arrived) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for number in 0_u32.. {
            let at = start + Duration::from_secs_f64(f64::from(number) / rate);
            if at >= end {
                break;
            }
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if moments.send(at).is_err() {
                break;
            }
        }
    });
    arrived
}
