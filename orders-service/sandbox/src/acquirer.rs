//! The acquirer at work: the ledger, and all that takes time (slow and late payments, webhooks, an outage).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chassis::clock;
use chassis::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::background::Background;
use crate::event::Event;
use crate::ledger::{Charge, Counters, Decision, Effect, Ledger, Receipt, Refund, Refusal, Reply, Totals};
use crate::webhooks::{Occasion, Webhooks};

/// What both APIs stand on.
pub(crate) struct Acquirer {
    books: Mutex<Books>,
    webhooks: Arc<Webhooks>,
    background: Background,
    shutdown: Shutdown,
}

/// No clock counts that far.
#[derive(Debug, thiserror::Error)]
#[error("the outage is too long")]
pub(crate) struct EndlessOutage;

/// How a `PUT` of a payment ends.
pub(crate) enum Answer {
    Payment(Receipt),
    InternalError,
    /// By closing the connection.
    Close,
}

enum Taken {
    Now(Answer),
    WhenDecided(watch::Receiver<()>),
    Never,
}

#[derive(Default)]
struct Books {
    ledger: Ledger,
    /// One sender for each payment somebody waits for. It is dropped when the payment is decided, and that is the signal.
    undecided: HashMap<String, watch::Sender<()>>,
    outage_until: Option<Instant>,
    /// Whether it refuses meanwhile instead of saying that it is away.
    outage_refuses: bool,
}

// === impl Acquirer ===

impl Acquirer {
    pub(crate) fn new(webhooks: Arc<Webhooks>, background: Background, shutdown: Shutdown) -> Arc<Self> {
        Arc::new(Acquirer { books: Mutex::default(), webhooks, background, shutdown })
    }

    /// Takes a payment, and answers when its method says so. All that will happen to the payment is arranged before the
    /// first await, so a client that goes away changes nothing.
    pub(crate) async fn pay(self: &Arc<Self>, id: &str, charge: Charge) -> Result<Answer, Refusal> {
        match self.take(id, charge)? {
            Taken::Now(answer) => Ok(answer),
            Taken::WhenDecided(mut decided) => {
                while decided.changed().await.is_ok() {}
                Ok(self.books().ledger.receipt(id).map_or(Answer::Close, Answer::Payment))
            }
            Taken::Never => {
                // Never, but for the shutdown: it must not wait for a connection that hangs on purpose.
                self.shutdown.draining().await;
                Ok(Answer::Close)
            }
        }
    }

    pub(crate) fn query(&self, id: &str) -> Result<Receipt, Refusal> {
        self.books().ledger.query(id)
    }

    pub(crate) fn refund(&self, id: &str, refund_id: &str, refund: Refund) -> Result<Refund, Refusal> {
        self.books().ledger.refund(id, refund_id, refund)
    }

    pub(crate) fn settle(&self, id: &str, decision: Decision) -> Result<String, Refusal> {
        let mut books = self.books();
        let (event_id, event) = books.ledger.settle(id, decision, clock::wall())?;
        if let Some(event) = event {
            self.publish(&mut books, id, event);
        }
        Ok(event_id)
    }

    pub(crate) fn redeliver(&self, event_id: &str) -> Result<(), Refusal> {
        let event = self.books().ledger.event(event_id)?;
        self.deliver(event, Occasion::Redelivery);
        Ok(())
    }

    pub(crate) fn counters(&self, id: &str) -> Option<Counters> {
        self.books().ledger.counters(id)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.books().ledger.totals()
    }

    pub(crate) fn enable_webhooks(&self, enabled: bool) {
        self.webhooks.enable(enabled);
    }

    /// Begins an outage of this length; the one before ends with it, so a length of zero ends any.
    pub(crate) fn begin_outage(&self, length: Duration, refuses: bool) -> Result<(), EndlessOutage> {
        let until = Instant::now().checked_add(length).ok_or(EndlessOutage)?;
        let mut books = self.books();
        (books.outage_until, books.outage_refuses) = (Some(until), refuses);
        Ok(())
    }

    /// How long the outage still lasts, if there is one, and whether it refuses.
    pub(crate) fn outage_left(&self) -> Option<(Duration, bool)> {
        let books = self.books();
        let left = books.outage_until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some((left, books.outage_refuses))
    }

    /// One lock for the transition and what it arranges: a payment cannot be decided before somebody waits for it.
    fn take(self: &Arc<Self>, id: &str, charge: Charge) -> Result<Taken, Refusal> {
        let mut books = self.books();
        let (reply, effect) = books.ledger.pay(id, charge, clock::wall())?;
        match effect {
            Effect::Nothing => {}
            Effect::Announce(event) => self.deliver(event, Occasion::News),
            Effect::MatureAfter(delay) => self.mature_after(delay, id),
        }
        Ok(match reply {
            Reply::Payment(receipt) => Taken::Now(Answer::Payment(receipt)),
            Reply::InternalError => Taken::Now(Answer::InternalError),
            Reply::Close => Taken::Now(Answer::Close),
            Reply::WhenDecided => Taken::WhenDecided(books.undecided.entry(id.to_owned()).or_default().subscribe()),
            Reply::Never => Taken::Never,
        })
    }

    fn mature_after(self: &Arc<Self>, delay: Duration, id: &str) {
        let (acquirer, id) = (Arc::clone(self), id.to_owned());
        let due = Instant::now() + delay;
        self.background.spawn("mature payment", async move {
            sleep_until(due).await;
            let mut books = acquirer.books();
            if let Some(event) = books.ledger.mature(&id, clock::wall()) {
                acquirer.publish(&mut books, &id, event);
            }
        });
    }

    /// Tells those who wait for the payment, and the merchant.
    fn publish(&self, books: &mut Books, id: &str, event: Event) {
        books.undecided.remove(id);
        self.deliver(event, Occasion::News);
    }

    fn deliver(&self, event: Event, occasion: Occasion) {
        let webhooks = Arc::clone(&self.webhooks);
        self.background.spawn("deliver webhook", async move { webhooks.deliver(event, occasion).await });
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no transition panics half-way")
    }
}
