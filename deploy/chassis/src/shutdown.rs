//! How a process ends: readiness fails, balancers look away, then the drain begins.

use crate::admin::Readiness;
use crate::tasks::Tasks;
use crate::telemetry;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How long whoever is told twice to end waits for its last line to be written.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Says when the drain begins. Dropping it does not begin one.
#[derive(Debug, Clone)]
pub struct Trigger {
    phase: watch::Sender<Phase>,
}

/// Knows whether the drain has begun: cheap to clone, every clone hears the same trigger.
#[derive(Debug, Clone)]
pub struct Shutdown {
    phase: watch::Receiver<Phase>,
    // A receiver whose senders are all gone would never resolve `wait_for`; holding one makes "never" the answer.
    open: watch::Sender<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Still serving everybody, but asking them to go elsewhere.
    Leaving,
    Draining,
}

// === impl Trigger ===

impl Trigger {
    /// Announces the end: readiness that follows this shutdown fails and HTTP/1 answers ask to close the connection, while
    /// everything is still served. Nothing happens when the drain has begun already.
    pub fn leave(&self) {
        self.advance_to(Phase::Leaving);
    }

    /// Begins the drain. Safe to repeat.
    pub fn begin(&self) {
        self.advance_to(Phase::Draining);
    }

    fn advance_to(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let advances = *phase < next;
            if advances {
                *phase = next;
            }
            advances
        });
    }
}

// === impl Shutdown ===

impl Shutdown {
    /// A pair that is still serving.
    #[allow(clippy::new_ret_no_self, reason = "the two halves are made together")]
    pub fn new() -> (Trigger, Shutdown) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (Trigger { phase: sender.clone() }, Shutdown { phase: receiver, open: sender })
    }

    /// Resolves when the drain has begun, at once if it already has.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.phase.clone();
        let open = self.open.clone();
        async move {
            let _ = phase.wait_for(|phase| *phase == Phase::Draining).await;
            drop(open);
        }
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() == Phase::Draining
    }

    /// Whether the end was announced, or the drain has begun.
    pub fn is_leaving(&self) -> bool {
        *self.phase.borrow() >= Phase::Leaving
    }
}

/// Listens to SIGTERM and SIGINT for the rest of the process.
///
/// SIGTERM fails `readiness` at once, waits `drain_delay` so that balancers stop sending, then begins the drain. SIGINT
/// begins it at once: nobody balances to a terminal. A second signal of either kind ends the process at once, with 128 +
/// its number. Call inside a runtime.
pub fn on_signals(drain_delay: Duration, readiness: Readiness) -> Shutdown {
    let (trigger, shutdown) = Shutdown::new();
    let mut signals = Signals::listen();
    drop(Tasks::new().spawn("signals", async move {
        let first = signals.next().await;
        readiness.set(false);
        if first == SignalKind::terminate() {
            tracing::info!(drain_delay_ms = drain_delay.as_millis() as u64, "SIGTERM: not ready any more");
            trigger.leave();
            tokio::select! {
                () = tokio::time::sleep(drain_delay) => {}
                second = signals.next() => exit_at_once(second),
            }
        }
        tracing::info!("draining");
        trigger.begin();
        exit_at_once(signals.next().await);
    }));
    shutdown
}

fn exit_at_once(signal: SignalKind) -> ! {
    tracing::warn!("second signal: exiting without waiting");
    telemetry::flush_log(LAST_WORDS);
    std::process::exit(128 + signal.as_raw_value())
}

struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    fn listen() -> Self {
        let listen = |kind: SignalKind| {
            signal(kind).inspect_err(|error| tracing::error!(%error, ?kind, "cannot listen to a signal")).ok()
        };
        Self { terminate: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            () = received(&mut self.terminate) => SignalKind::terminate(),
            () = received(&mut self.interrupt) => SignalKind::interrupt(),
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
