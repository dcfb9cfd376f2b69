//! The acquirer's events: believed when signed, kept by event id, applied in the transaction that meets their payment.

use bytes::Bytes;
use chassis::{clock, deadline::Deadline};
use database::{DatabaseError, Tx};
use fault_point::fault_point;
use serde::Deserialize;

use crate::{
    error::OrdersError,
    money::Currency,
    operation_id::PaymentId,
    payment::Verdict,
    receive_events::{Fate, Waiting},
    settle::{self, Applied},
    shop::{Shop, alert},
    signature::{self, Rejection},
    store::{
        events::{self, Event},
        payments::{self, PaymentRow},
    },
};

/// Events taken in one round of the sweep.
const ROUND: u32 = 100;

/// An event's name or kind longer than this is not one of the acquirer's.
const WORD_MAX: usize = 200;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The event is kept.
    Accepted {
        /// It had been kept before.
        is_duplicate: bool,
    },
    /// It is not believed, and not kept.
    Rejected(Rejection),
}

/// What an event did.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// It had been applied before, waits for its payment, or is of no concern.
    None,
    /// Its word was applied.
    Applied(PaymentId, Applied),
    /// It speaks of other money than ours: never adopted.
    Mismatch(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    id: String,
    r#type: String,
    payment_id: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    occurred_at: Option<String>,
}

impl Shop {
    /// Takes a delivery. Accepted means durable: the acquirer need not send it again.
    pub async fn receive(
        &self,
        body: Bytes,
        header: &str,
        deadline: Option<Deadline>,
    ) -> Result<Delivery, OrdersError> {
        let delivery = match read(&self.settings.webhook_secret, &body, header) {
            Ok(event) => Delivery::Accepted { is_duplicate: self.keep(event, body, deadline).await? },
            Err(rejection) => Delivery::Rejected(rejection),
        };
        metrics::counter!("orders_webhooks_total", "result" => delivery.name()).increment(1);
        Ok(delivery)
    }

    /// Keeps an event and applies it if its payment is there; true when it had been kept before.
    async fn keep(&self, event: Event, body: Bytes, deadline: Option<Deadline>) -> Result<bool, OrdersError> {
        let id = event.id.clone();
        fault_point!("receive event: line up" => Err(DatabaseError::Conflict.into()));
        let fate = self.events.carry_one(Waiting::new(event, body, deadline)).await?;
        fault_point!("receive event: carried" => Err(DatabaseError::CommitUnknown.into()));
        let (is_new, effect) = match fate {
            Fate::Done(effect) => (true, effect),
            Fate::Alone { is_new } => (is_new, self.apply_event(id).await?),
            Fate::Failed(error) => return Err(error),
        };
        self.show(effect);
        Ok(!is_new)
    }

    async fn apply_event(&self, id: String) -> Result<Effect, OrdersError> {
        self.act("apply event", move |tx| {
            let id = id.clone();
            Box::pin(async move { apply(tx, &id).await })
        })
        .await
    }

    /// Applies events that came before their payment; returns how many there were.
    pub(crate) async fn event_round(&self) -> Result<usize, OrdersError> {
        let waiting =
            self.store.read("waiting events", |tx| Box::pin(async move { events::waiting(tx, ROUND).await })).await?;
        let count = waiting.len();
        for id in waiting {
            let effect = self.apply_event(id).await?;
            self.show(effect);
        }
        Ok(count)
    }

    fn show(&self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Applied(payment, applied) => self.after(payment, &applied),
            Effect::Mismatch(what) => alert("mismatch", &what),
        }
    }
}

/// Applies a kept event once.
async fn apply(tx: &mut Tx<'_>, id: &str) -> Result<Effect, OrdersError> {
    let Some(event) = events::lock_waiting(tx, id).await? else { return Ok(Effect::None) };
    let Some(verdict) = event.verdict() else {
        // A kind that a later release may understand is kept, and does not wait for anything.
        events::applied(tx, id).await?;
        return Ok(Effect::None);
    };
    let payment = match event.payment_id() {
        Some(payment) => payments::find(tx, payment).await?,
        None => None,
    };
    let Some(payment) = payment else { return Ok(Effect::None) };
    let effect = if about(&event, &payment) {
        Effect::Applied(payment.id, settle::apply(tx, payment.id, verdict).await?)
    } else {
        Effect::Mismatch(format!("event {id} about payment {}: its money is not {}", payment.id, payment.amount))
    };
    events::applied(tx, id).await?;
    Ok(effect)
}

/// Whether an event speaks of the money of our own row.
pub(crate) fn about(event: &Event, payment: &PaymentRow) -> bool {
    event.amount == Some(payment.amount.amount) && event.currency.as_deref() == Some(payment.amount.currency.as_str())
}

impl Event {
    /// The word it brings; none when it is of a kind not known here.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        verdict(&self.kind)
    }

    /// The payment it speaks of, if that can be one of ours.
    pub(crate) fn payment_id(&self) -> Option<PaymentId> {
        self.payment.as_deref().and_then(PaymentId::parse)
    }
}

fn verdict(kind: &str) -> Option<Verdict> {
    match kind {
        "payment.approved" => Some(Verdict::Approved),
        "payment.declined" => Some(Verdict::Declined),
        _ => None,
    }
}

/// Believes a delivery, or says why not. The signature comes first: nothing unsigned is parsed.
fn read(secret: &[u8], body: &[u8], header: &str) -> Result<Event, Rejection> {
    signature::verify(secret, header, body, clock::wall())?;
    let body: Body = serde_json::from_slice(body).map_err(|_| Rejection::Malformed)?;
    note_lag(body.occurred_at.as_deref());
    let is_known = verdict(&body.r#type).is_some();
    let is_whole = body.payment_id.is_some() && body.amount.is_some() && body.currency.is_some();
    if !is_word(&body.id) || !is_word(&body.r#type) || (is_known && !is_whole) {
        return Err(Rejection::Malformed);
    }
    // As the rows spell it, whatever case the acquirer writes it in; what cannot be ours matches nothing.
    let payment = body.payment_id.and_then(|text| PaymentId::parse(&text)).map(|id| id.to_string());
    let currency = body.currency.filter(|code| Currency::new(code).is_some());
    Ok(Event { id: body.id, kind: body.r#type, payment, amount: body.amount, currency })
}

/// How long ago an event happened, by its sender's clock. One that does not say when, or says it unreadably, is none the worse.
fn note_lag(occurred_at: Option<&str>) {
    let Some(occurred_at) = occurred_at.and_then(|text| clock::parse_rfc3339(text).ok()) else { return };
    let lag = clock::wall().duration_since(occurred_at).unwrap_or_default();
    metrics::histogram!("orders_webhook_lag_seconds").record(lag.as_secs_f64());
}

fn is_word(text: &str) -> bool {
    (1..=WORD_MAX).contains(&text.len()) && !text.contains(char::is_control)
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Self::Accepted { is_duplicate: false } => "accepted",
            Self::Accepted { is_duplicate: true } => "duplicate",
            Self::Rejected(Rejection::Malformed) => "malformed",
            Self::Rejected(Rejection::BadSignature) => "bad_signature",
            Self::Rejected(Rejection::TooOld) => "too_old",
        }
    }
}
