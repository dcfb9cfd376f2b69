//! The half that buys and checks, from its first order to its verdict. All it knows of the other half is the edge.

use std::{
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context as _;
use tokio::time::sleep;

use crate::{
    buyers::{Buyers, Market, Settings, sweep},
    checker::{self, Violation},
    edge::{Edge, StoreAccess, Window},
    history::{Call, Course, Event, History, Recorder},
    ledger::{Ledger, Reader, Sampler, until_quiet},
    report::{self, Report},
};

/// The file of the windows, in the directory of a run.
const WINDOWS: &str = "windows.json";

/// How long buyers may go on asking after the faults, beyond one lease.
const BUYERS_PATIENCE: Duration = Duration::from_secs(60);
/// How long keys may be open after the faults, beyond one lease; a moment more than is allowed, so that it can be judged.
const KEYS_PATIENCE: Duration = Duration::from_secs(92);
const READ_TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Buyers at work, and everything they see written down.
pub struct Proof {
    edge: Edge,
    directory: PathBuf,
    recorder: Recorder,
    buyers: Buyers,
    sampler: Sampler,
}

/// What came of a run.
#[derive(Debug)]
pub struct Verdict {
    /// Every promise that was broken.
    pub violations: Vec<Violation>,
    /// How many requests were sent.
    pub operations: usize,
    /// How many of them were answered with success.
    pub successes: usize,
    /// The report, for people.
    pub report: PathBuf,
}

// === impl Proof ===

impl Proof {
    /// Opens the shop in a world that is ready, and sends the buyers in. `command` is what repeats the run.
    pub async fn begin(edge: &Edge, directory: &Path, settings: Settings, command: &str) -> anyhow::Result<Self> {
        let recorder = Recorder::create(directory)?;
        recorder.record(Event::Course(Course {
            seed: settings.seed,
            command: command.to_owned(),
            lease_ms: millis(edge.lease),
            upstream_timeout_ms: millis(edge.upstream_timeout),
            hold_ttl_ms: millis(edge.hold_ttl),
            began_at_ms: millis(chassis::clock::wall().duration_since(UNIX_EPOCH)?) - edge.clock.now_ms(),
            has_store_clock: matches!(edge.store, StoreAccess::Postgres(_)),
            tenants: edge.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
            faults_stopped_ms: None,
            sweep_began_ms: None,
        }));
        let market = Market::open(edge).await?;
        let sampler = Sampler::start(edge, &recorder);
        let buyers = Buyers::start(edge, &recorder, market, settings)?;
        Ok(Self { edge: edge.clone(), directory: directory.to_owned(), recorder, buyers, sampler })
    }

    /// After the last fault, with everything healed: lets everything settle, asks for every answer once more, reads the ledger, and
    /// judges.
    pub async fn finish(self) -> anyhow::Result<Verdict> {
        let stopped_ms = self.edge.clock.now_ms();
        self.recorder.record(Event::FaultsStopped { ms: stopped_ms });
        self.buyers.finish(self.edge.lease + BUYERS_PATIENCE).await?;
        let mut reader = Reader::new(&self.edge);
        let waited = Duration::from_millis(self.edge.clock.now_ms() - stopped_ms);
        let open = until_quiet(&mut reader, (self.edge.lease + KEYS_PATIENCE).saturating_sub(waited)).await;
        for what in open {
            tracing::warn!("still open: {what}");
        }
        let ledger = patiently(&mut reader, async |reader| reader.keys().await).await?;
        sweep(&self.edge, &self.recorder, &ledger).await?;
        self.sampler.stop().await?;
        let ledger = patiently(&mut reader, async |reader| reader.ledger().await).await?;
        self.recorder.flush()?;
        ledger.write(&self.directory)?;
        let windows = self.edge.windows.snapshot();
        let path = self.directory.join(WINDOWS);
        std::fs::write(&path, serde_json::to_vec_pretty(&windows)?)
            .with_context(|| format!("the windows cannot be written to {}", path.display()))?;
        judge(&self.directory, &self.recorder.history(), &ledger, &windows)
    }
}

/// Judges a recorded run once more.
pub fn check_again(directory: &Path) -> anyhow::Result<Verdict> {
    let history = History::read(directory)?;
    let ledger = Ledger::read(directory)?;
    let path = directory.join(WINDOWS);
    let text = std::fs::read(&path).with_context(|| format!("no windows at {}", path.display()))?;
    let windows: Vec<Window> = serde_json::from_slice(&text)?;
    judge(directory, &history, &ledger, &windows)
}

fn judge(directory: &Path, history: &History, ledger: &Ledger, windows: &[Window]) -> anyhow::Result<Verdict> {
    let violations = checker::check(history, ledger, windows);
    let made = Report::of(history, ledger, windows, &violations);
    let report = report::write(&made, directory)?;
    let successes = history.calls.iter().filter_map(Call::answer).filter(|answer| answer.status < 300).count();
    Ok(Verdict { violations, operations: history.calls.len(), successes, report })
}

/// The last faults may still be felt when the ledger is read.
async fn patiently<T>(
    reader: &mut Reader<'_>,
    read: impl AsyncFn(&mut Reader<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut tries = 0;
    loop {
        tries += 1;
        match read(reader).await {
            Err(error) if tries < READ_TRIES => {
                tracing::warn!("the ledger cannot be read yet: {error:#}");
                sleep(PAUSE).await;
            }
            read => return read,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
