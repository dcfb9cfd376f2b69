//! Not faster than the machine: everybody waits for a turn before sending.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{Interval, MissedTickBehavior, interval},
};

/// Hands out turns, so many a second.
pub(super) struct Pace {
    turns: Mutex<Interval>,
}

impl Pace {
    pub(super) fn new(rate: f64) -> Self {
        let mut turns = interval(Duration::from_secs_f64(1.0 / rate.max(0.1)));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { turns: Mutex::new(turns) }
    }

    pub(super) async fn turn(&self) {
        self.turns.lock().await.tick().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_rate_and_not_in_bursts() {
        let pace = Pace::new(20.0);
        tokio::time::advance(Duration::from_secs(5)).await;
        let begun = Instant::now();
        for _ in 0..21 {
            pace.turn().await;
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(950) && took <= Duration::from_millis(1_100), "{took:?}");
    }
}
